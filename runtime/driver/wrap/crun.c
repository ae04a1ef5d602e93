/* runtime/driver/wrap/libcrun.c - two functions that libcrun gets instead of its own (ld --wrap). A
 * library of its own, so that it is found wherever libcrun is linked. */
#include <errno.h>
#include <pwd.h>
#include <stddef.h>

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
