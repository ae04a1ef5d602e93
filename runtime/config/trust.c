#include "runtime/config/trust.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

/* The name only has to be short: the path itself is the first line of the copy. */
static char *copy_path(const char *data, const char *path)
{
    return str_printf("%s/trust/%016llx", data,
                      (unsigned long long)str_hash(STR_HASH, path, strlen(path)));
}

bool trust_has(const char *data, const char *path, const char *text, size_t len)
{
    AUTOFREE char *copy = copy_path(data, path), *have = NULL;
    size_t head = strlen(path) + 1, n = 0;
    struct stat st;

    if (lstat(copy, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        (size_t)st.st_size != head + len)
        return false;
    return fs_read(AT_FDCWD, copy, head + len, &have, &n, NULL) == 0 && n == head + len &&
           memcmp(have, path, head - 1) == 0 && have[head - 1] == '\n' &&
           memcmp(have + head, text, len) == 0;
}

int trust_add(const char *data, const char *path, const char *text, size_t len, struct err **e)
{
    AUTOFREE char *dir = path_join(data, "trust"), *copy = copy_path(data, path);
    AUTOSTR struct str all = STR_INIT;
    int rc;

    if (strchr(path, '\n'))
        return err_new(e, ERR_DENIED, "a file whose path has a line break can't be trusted");
    if ((rc = fs_private_dir(data, e)) < 0 || (rc = fs_private_dir(dir, e)) < 0)
        return rc;
    str_addf(&all, "%s\n", path);
    str_addn(&all, text, len);
    return fs_write_atomic(AT_FDCWD, copy, all.p, all.len, 0600, e);
}

int trust_remove(const char *data, const char *path, bool *ret_had, struct err **e)
{
    AUTOFREE char *copy = copy_path(data, path);
    *ret_had = unlink(copy) == 0;
    if (!*ret_had && errno != ENOENT && errno != ENOTDIR)
        return err_sys(e, "remove '%s'", copy);
    return 0;
}
