#include "runtime/change/promote.h"
int hunks_choose(struct promotion *m, bool *ret_quit, struct err **e)
{
    return err_new(e, ERR_UNSUPPORTED, "not yet");
}
