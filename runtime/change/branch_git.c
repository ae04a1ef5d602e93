#include "runtime/change/promote.h"
int branch_commit(const struct record *r, struct picks *p, const char *name, char **ret_commit,
                  struct err **e)
{
    return err_new(e, ERR_UNSUPPORTED, "not yet");
}
