// Command example stores and reads a value through the C interface of Quintet.
package main

/*
#include "quintet.h"
*/
import "C"

import (
	"fmt"
	"log"
	"os"
	"runtime"
	"unsafe"
)

// check ends the program if a call has failed.
func check(code C.quintet_code, failure *C.quintet_error) {
	if code != C.QUINTET_OK {
		log.Fatal(C.GoString(C.quintet_error_message(failure)))
	}
}

// slice names the bytes of a text, pinned until the pinner releases them.
func slice(pinner *runtime.Pinner, text string) C.quintet_slice {
	if text == "" {
		return C.quintet_bytes(nil, 0)
	}
	data := unsafe.Pointer(unsafe.StringData(text))
	pinner.Pin(data)
	return C.quintet_bytes(data, C.size_t(len(text)))
}

func main() {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	var failure *C.quintet_error
	var database *C.quintet_database
	var table *C.quintet_table
	path, name, engine := slice(&pinner, os.Args[1]), slice(&pinner, "users"), slice(&pinner, "btree")
	check(C.quintet_open(path, nil, &database, &failure), failure)
	check(C.quintet_open_or_create_table(database, name, engine, nil, &table, &failure), failure)

	key := slice(&pinner, "alice")
	check(C.quintet_put(table, key, slice(&pinner, "Alice"), nil, nil, &failure), failure)
	var value C.quintet_buffer
	var found C.bool
	check(C.quintet_get(table, key, &value, &found, &failure), failure)
	text := C.GoStringN((*C.char)(unsafe.Pointer(value.data)), C.int(value.size))
	if !bool(found) || text != "Alice" {
		log.Fatalf("found %t, %q", bool(found), text)
	}
	fmt.Println(text)

	check(C.quintet_buffer_free(&value, &failure), failure)
	check(C.quintet_table_free(table, &failure), failure)
	check(C.quintet_close(database, &failure), failure)
	check(C.quintet_database_free(database, &failure), failure)
}
