/* A petri-init that lies, seen from a client: its answers to questions about files. The first byte chooses
 * the question, the rest is the answer. */
#include <fcntl.h>
#include <sys/socket.h>

#include "runtime/client/fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(struct petri_sandbox *s, int what)
{
    struct petri_stat st = PETRI_STAT_INIT;
    struct petri_error e = PETRI_ERROR_INIT;
    struct petri_dir *d = NULL;
    const char *target;
    char *text = NULL;
    size_t n;

    switch (what) {
    case 0:
        if (petri_fs_ls(s, "x", &d, &e) == 0)
            for (const char *name; (name = petri_dir_next(d, &st, &target));)
                if (!*name || strchr(name, '/'))
                    abort();
        petri_dir_free(d);
        break;
    case 1:
        (void)petri_fs_stat(s, "x", PETRI_FS_NOFOLLOW, &st, &text, &e);
        break;
    case 2:
        if (petri_fs_read(s, "x", 0, &text, &n, &e) == 0)
            abort(); /* no descriptor came */
        break;
    default:
        (void)petri_fs_mv(s, "x", "y", &e);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char nowhere[] = "/nonexistent";
    static const struct petri_client client = { .data = nowhere, .run = nowhere };
    struct petri_sandbox s = { .client = &client, .id = "0123456789ab", .has_files = true };
    int pair[2];

    if (size < 1 || size > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return 0;
    s.name = str_dup("fuzz");
    s.files = (struct conn){ .fd = pair[0], .passed = -1 };
    if (send(pair[1], data + 1, size - 1, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size - 1 &&
        shutdown(pair[1], SHUT_WR) == 0)
        ask(&s, data[0] % 4);
    close(pair[1]);
    conn_close(&s.files);
    free(s.name);
    return 0;
}
