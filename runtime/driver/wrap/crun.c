/* runtime/driver/wrap/crun.c - three functions that libcrun gets instead of its own (ld --wrap). A
 * library of its own, so that it is found wherever libcrun is linked. */
#include <config.h> /* libcrun's own, before its headers */

#include <errno.h>
#include <libcrun/error.h>
#include <libcrun/seccomp.h>
#include <pwd.h>
#include <stddef.h>
#include <string.h>

#include "base/fs.h"
#include "oci/config.h"
#include "seccomp_bpf.h"

/* libcrun re-executes its program from a sealed copy before main(), against a container that writes
 * to its runtime through /proc/self/exe. Here the first process of every container is petri's own
 * read-only init in another user namespace, so the copy (2 ms for every command, --version too) buys
 * nothing: the linker is told (--wrap) to take this one instead of the library's. */
int __wrap_ensure_cloned_binary(void);
int __wrap_ensure_cloned_binary(void)
{
    return 0;
}

/* It also asks the name service who we are, for a status file that nobody reads; in a static program
 * that would load the machine's own libraries. */
int __wrap_getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t n, struct passwd **ret);
int __wrap_getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t n, struct passwd **ret)
{
    *ret = NULL;
    return ENOENT;
}

/* The compiled filter, as it is. It would be base64 in config.json, which the library takes longer to read back and
 * decode than the kernel to load it, while the container waits. */
__typeof__(libcrun_copy_seccomp) __wrap_libcrun_copy_seccomp;
int __wrap_libcrun_copy_seccomp(struct libcrun_seccomp_gen_ctx_s *gen, const char *data,
                                libcrun_error_t *err)
{
    if (strcmp(data, CONFIG_SECCOMP) != 0)
        return crun_make_error(err, 0, "not petri's seccomp filter");
    if (fs_write_all(gen->fd, seccomp_bpf, sizeof seccomp_bpf) < 0)
        return crun_make_error(err, errno, "write the seccomp filter");
    return 0;
}
