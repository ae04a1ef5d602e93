#include "runtime/driver/crun.h"

#include <config.h> /* libcrun's own, before its headers */

#include <fcntl.h>
#include <libcrun/container.h>
#include <libcrun/error.h>
#include <string.h>

#include "base/fs.h"

/* Each sandbox has a key ring of its own, and the kernel counts an ordinary user's. */
static int no_more_keys(struct err **e)
{
    AUTOFREE char *text = NULL;
    if (fs_read(AT_FDCWD, "/proc/sys/kernel/keys/maxkeys", 64, &text, NULL, NULL) == 0)
        text[strcspn(text, "\n")] = '\0';
    return err_new(
        e, ERR_LIMIT,
        "this user has as many keys as the kernel allows (kernel.keys.maxkeys is %s, and "
        "about as many sandboxes fit); stop some, or raise it with sysctl",
        text ? text : "200");
}

int crun_run(const struct crun_req *r, struct err **e)
{
    libcrun_error_t lerr = NULL;
    libcrun_container_t *c;
    libcrun_context_t ctx = {
        .id = r->id,
        .state_root = r->state_root,
        .bundle = r->state_root,
        .fifo_exec_wait_fd = r->wait_fd,
        .preserve_fds = r->keep_fds,
        .force_no_cgroup = true, /* the cgroup is petri's own, and the caller sits in it already */
    };
    int rc;

    c = libcrun_container_load_from_memory(r->config, &lerr);
    rc = c ? libcrun_container_run(&ctx, c, 0, &lerr) : -1;
    if (rc < 0 && lerr) {
        rc = lerr->status == EDQUOT && strstr(lerr->msg, "keyring")
                 ? no_more_keys(e)
                 : err_new(e, ERR_FAILED, "%s%s%s", lerr->msg, lerr->status ? ": " : "",
                           lerr->status ? strerror(lerr->status) : "");
        libcrun_error_release(&lerr);
        return rc;
    }
    return rc < 0 ? err_new(e, ERR_FAILED, "the runtime failed without a word") : 0;
}
