/* Errors: codes, messages, details; and handles that are null, freed, or of another kind. */
#include "example.h"

static int refuse(void *context, const quintet_slice *old, quintet_buffer *value) {
  (void)context, (void)old, (void)value;
  return 7;
}

int main(int count, char **arguments) {
  quintet_database *database = open_database(count, arguments);
  quintet_table *table = NULL, *missing = NULL;
  quintet_error *failure = NULL;
  quintet_buffer detail = {0};
  bool found = false;
  EXPECT(quintet_open_table(database, S("none"), &missing, &failure) == QUINTET_NO_SUCH_TABLE);
  EXPECT(missing == NULL && quintet_error_code(failure) == QUINTET_NO_SUCH_TABLE);
  EXPECT(strstr(quintet_error_message(failure), "none") != NULL);
  CHECK(quintet_error_detail(failure, S("name"), &detail, &found, &error));
  EXPECT(found && equals(quintet_content(&detail), "none"));
  EXPECT(strcmp(quintet_code_name(QUINTET_NO_SUCH_TABLE), "NoSuchTable") == 0);
  quintet_error_free(failure);

  CHECK(quintet_create_table(database, S("table"), S("hashlog"), NULL, &table, &error));
  EXPECT(quintet_create_table(database, S("x"), S("oak"), NULL, &missing, NULL) ==
         QUINTET_UNKNOWN_ENGINE);
  EXPECT(quintet_update(table, S("key"), NULL, refuse, NULL, NULL, NULL, NULL) ==
         QUINTET_CALLBACK_FAILED);
  EXPECT(quintet_put(NULL, S("a"), S("b"), NULL, NULL, NULL) == QUINTET_NULL_ARGUMENT);
  EXPECT(quintet_put(table, quintet_bytes(NULL, 3), S("b"), NULL, NULL, NULL) ==
         QUINTET_NULL_ARGUMENT);
  EXPECT(quintet_get(table, S("a"), NULL, NULL, NULL) == QUINTET_NULL_ARGUMENT);
  EXPECT(quintet_put((quintet_table *)(void *)database, S("a"), S("b"), NULL, NULL, NULL) ==
         QUINTET_WRONG_HANDLE);
  EXPECT(quintet_put((quintet_table *)(void *)&detail, S("a"), S("b"), NULL, NULL, NULL) ==
         QUINTET_BAD_HANDLE);
  EXPECT(quintet_open(quintet_bytes("\xff", 1), NULL, &(quintet_database *){NULL}, NULL) ==
         QUINTET_NOT_UTF8);

  CHECK(quintet_close(database, &error));
  EXPECT(quintet_put(table, S("a"), S("b"), NULL, NULL, NULL) == QUINTET_CLOSED);
  CHECK(quintet_table_free(table, &error));
  EXPECT(quintet_put(table, S("a"), S("b"), NULL, NULL, NULL) == QUINTET_BAD_HANDLE);
  EXPECT(quintet_table_free(table, NULL) == QUINTET_BAD_HANDLE);
  CHECK(quintet_table_free(NULL, &error));
  CHECK(quintet_database_free(database, &error));
  CHECK(quintet_buffer_free(&detail, &error));
  return 0;
}
