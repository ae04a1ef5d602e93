/* runtime/client/fs_write.c - writing files: into a new one beside the target, which petri-init then puts
 * into its place. */
#include "base/fs.h"
#include "runtime/client/fs.h"

struct petri_file {
    struct petri_sandbox *s;
    char *path;
    int fd;
    struct conn c; /* its own: the commit must come on the connection that asked */
};

int petri_fs_write(struct petri_sandbox *s, const char *path, const void *p, size_t n,
                   unsigned mode, unsigned flags, struct petri_error *e)
{
    struct fs_ask a = { .op = FS_WRITE, .path = path, .mode = mode, .flags = flags },
                  commit = { .op = FS_COMMIT, .shown = path };

    if (fs_ask(s, &a, e) < 0)
        return -1;
    AUTOCLOSE int fd = a.fd;
    if (fs_write_all(fd, p, n) < 0) {
        client_sys(e, "write '%s' in sandbox '%s'", path, s->name);
        conn_close(&s->files); /* and with it the file that is not complete */
        s->has_files = false;
        return -1;
    }
    return fs_ask(s, &commit, e);
}

int petri_fs_create(struct petri_sandbox *s, const char *path, unsigned mode, unsigned flags,
                    struct petri_file **ret, struct petri_error *e)
{
    struct fs_ask a = { .op = FS_WRITE, .path = path, .mode = mode, .flags = flags };
    struct petri_file *f = malloc(sizeof *f);
    int rc;

    if (!f)
        abort();
    f->s = s;
    f->path = str_dup(path);
    f->fd = -1;
    f->c.fd = f->c.passed = -1;
    rc = *path ? fs_connect(s, &f->c, e) : client_fail(e, "invalid", "an empty path");
    if (rc == 0) {
        rc = fs_talk(&f->c, s, &a, e);
        if (rc < 0)
            client_lost(s, &f->c, e);
        rc = rc > 0 ? 0 : -1;
    }
    if (rc < 0) {
        petri_file_free(f);
        return -1;
    }
    f->fd = a.fd;
    *ret = f;
    return 0;
}

int petri_file_fd(const struct petri_file *f)
{
    return f->fd;
}

int petri_file_commit(struct petri_file *f, struct petri_error *e)
{
    struct fs_ask a = { .op = FS_COMMIT, .shown = f->path };
    int rc = fs_talk(&f->c, f->s, &a, e);

    if (rc < 0)
        client_fail(e, "stopped",
                    "sandbox '%s' ended or was replaced meanwhile; '%s' was not "
                    "written",
                    f->s->name, f->path);
    return rc > 0 ? 0 : -1;
}

void petri_file_free(struct petri_file *f)
{
    if (!f)
        return;
    conn_close(&f->c);
    close_p(&f->fd);
    free(f->path);
    free(f);
}
