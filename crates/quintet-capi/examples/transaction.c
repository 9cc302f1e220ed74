/* A transfer as a transaction, a savepoint, and a conflict. */
#include "example.h"

int main(int count, char **arguments) {
  quintet_database *database = open_database(count, arguments);
  quintet_table *accounts = NULL, *view = NULL;
  quintet_transaction *transaction = NULL;
  quintet_savepoint *savepoint = NULL;
  quintet_buffer value = {0};
  bool found = false;
  CHECK(quintet_create_table(database, S("accounts"), S("trie"), NULL, &accounts, &error));
  CHECK(quintet_put(accounts, S("alice"), S("100"), NULL, NULL, &error));

  CHECK(quintet_begin(database, NULL, &transaction, &error));
  CHECK(quintet_transaction_table(transaction, accounts, &view, &error));
  CHECK(quintet_get_for_update(view, S("alice"), &value, &found, &error));
  EXPECT(found && equals(quintet_content(&value), "100"));
  CHECK(quintet_put(view, S("alice"), S("90"), NULL, NULL, &error));
  CHECK(quintet_savepoint_new(transaction, &savepoint, &error));
  CHECK(quintet_put(view, S("alice"), S("0"), NULL, NULL, &error));
  CHECK(quintet_rollback_to(transaction, savepoint, &error));
  CHECK(quintet_commit(transaction, &error));
  CHECK(quintet_get(accounts, S("alice"), &value, &found, &error));
  EXPECT(found && equals(quintet_content(&value), "90"));
  EXPECT(quintet_put(view, S("alice"), S("1"), NULL, NULL, NULL) == QUINTET_ENDED);
  CHECK(quintet_table_free(view, &error));
  CHECK(quintet_savepoint_free(savepoint, &error));
  CHECK(quintet_transaction_free(transaction, &error));

  CHECK(quintet_begin(database, NULL, &transaction, &error));
  CHECK(quintet_transaction_table(transaction, accounts, &view, &error));
  CHECK(quintet_get(view, S("alice"), &value, &found, &error));
  CHECK(quintet_put(accounts, S("alice"), S("80"), NULL, NULL, &error));
  CHECK(quintet_put(view, S("bob"), S("10"), NULL, NULL, &error));
  EXPECT(quintet_commit(transaction, NULL) == QUINTET_CONFLICT);
  CHECK(quintet_table_free(view, &error));
  CHECK(quintet_transaction_free(transaction, &error));

  CHECK(quintet_buffer_free(&value, &error));
  CHECK(quintet_table_free(accounts, &error));
  close_database(database);
  return 0;
}
