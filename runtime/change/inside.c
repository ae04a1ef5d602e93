/* runtime/change/inside.c - reading what a sandbox wrote, whoever owns it and whatever its mode is. */
#include "runtime/driver/inside.h"
#include "runtime/change/record.h"

int record_run_inside(const struct record *r, int (*f)(void *arg, struct err **e), void *arg,
                      struct err **e)
{
    struct plan any = { .uid = 1, .gid = 1, .owner_uid = getuid(), .owner_gid = getgid() };
    bool many = r->ids == RECORD_IDS_SUB;
    struct ids ids;
    int rc;

    if (r->ids == RECORD_IDS_ROOT)
        return f(arg, e);
    if ((rc = ids_plan(&any, many, &ids, e)) < 0)
        return rc;
    if (many && ids.mode == IDS_SINGLE)
        return err_new(e, ERR_UNSUPPORTED,
                       "sandbox '%s' was made with a range of ids that /etc/subuid no longer gives",
                       record_label(r));
    return ids.mode == IDS_ROOT ? f(arg, e) : inside_run(&ids, f, arg, e);
}
