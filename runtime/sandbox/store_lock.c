#include "runtime/sandbox/store_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include "base/str.h"

static int take(const struct paths *paths, int how, int *ret_fd, struct err **e)
{
    AUTOFREE char *path = path_join(paths->data, "changes.lock");
    AUTOCLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(e, "open '%s'", path);
    if (RETRY(flock(fd, how)) < 0)
        return errno == EWOULDBLOCK ? -ERR_BUSY : err_sys(e, "lock '%s'", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int store_lock_shared(const struct paths *paths, int *ret_fd, struct err **e)
{
    return take(paths, LOCK_SH, ret_fd, e);
}

int store_lock_exclusive(const struct paths *paths, int *ret_fd, struct err **e)
{
    return take(paths, LOCK_EX | LOCK_NB, ret_fd, e);
}
