/* runtime/change/inside.c - reading what a sandbox wrote, whoever owns it and whatever its mode is. */
#include <fcntl.h>
#include <sched.h>

#include "base/fs.h"
#include "runtime/change/record.h"
#include "runtime/driver/inside.h"

struct job {
    int (*f)(void *arg, struct err **e);
    void *arg;
};

/* Root over one's own files only: enough to open a directory of mode 000. Where user namespaces are
 * forbidden the work goes on without; what can't be read is then named as such. */
static int as_own_root(void *arg, struct err **e)
{
    struct job *j = arg;
    AUTOFREE char *uids = str_printf("0 %u 1", getuid()), *gids = str_printf("0 %u 1", getgid());

    if (unshare(CLONE_NEWUSER) == 0) {
        int rc = fs_write_at(AT_FDCWD, "/proc/self/setgroups", "deny", e);
        if (rc == 0)
            rc = fs_write_at(AT_FDCWD, "/proc/self/uid_map", uids, e);
        if (rc == 0)
            rc = fs_write_at(AT_FDCWD, "/proc/self/gid_map", gids, e);
        if (rc < 0)
            return rc;
    }
    return j->f(j->arg, e);
}

int record_run_inside(const struct record *r, int (*f)(void *arg, struct err **e), void *arg,
                      struct err **e)
{
    struct plan any = { .uid = 1, .gid = 1, .owner_uid = getuid(), .owner_gid = getgid() };
    struct job job = { f, arg };
    struct ids ids = { .mode = IDS_SINGLE };
    int rc;

    if (geteuid() == 0 && r->ids == RECORD_IDS_ROOT)
        return f(arg, e);
    if (r->ids != RECORD_IDS_SUB)
        return inside_run(&ids, as_own_root, &job, e);
    if ((rc = ids_plan(&any, true, &ids, e)) < 0)
        return rc;
    if (ids.mode != IDS_SUB)
        return err_new(e, ERR_UNSUPPORTED,
                       "sandbox '%s' was made with a range of ids that /etc/subuid no longer gives",
                       record_label(r));
    return inside_run(&ids, f, arg, e);
}
