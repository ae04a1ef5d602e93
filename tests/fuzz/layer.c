/* Any bytes as a layer: they are refused or unpacked, and nothing beside the directory changes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/layer.h"
#include "image/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int top = -1;
static char dir[] = "/dev/shm/petri-test-fuzz-XXXXXX";
static struct stat before; /* of the directory beside it */

static void must(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

static void clean_up(void)
{
    (void)fs_remove_tree(AT_FDCWD, dir, NULL);
}

/* out/secret, and in/ afresh for every input. */
static void set_up(void)
{
    must(mkdtemp(dir) != NULL, dir);
    top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(top >= 0 && mkdirat(top, "out", 0755) == 0, "mkdir");
    must(fs_write_atomic(top, "out/secret", "CANARY", 6, 0600, NULL) == 0, "canary");
    must(fstatat(top, "out", &before, 0) == 0, "out");
    atexit(clean_up);
}

static void outside_is_whole(void)
{
    char *text = NULL;
    struct stat st, out;
    must(fs_read(top, "out/secret", 100, &text, NULL, NULL) == 0 && !strcmp(text, "CANARY"),
         "canary");
    free(text);
    must(fstatat(top, "out/secret", &st, 0) == 0 && (st.st_mode & 07777) == 0600 &&
             st.st_nlink == 1,
         "canary's mode");
    must(fstatat(top, "out", &out, 0) == 0 && out.st_ctim.tv_sec == before.st_ctim.tv_sec &&
             out.st_ctim.tv_nsec == before.st_ctim.tv_nsec,
         "beside it");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct caps caps = { .max_bytes = 1 << 20, .max_entries = 64, .ratio = true };
    CLEANUP(stream_free_p) struct stream *s = NULL;
    CLEANUP(stream_sum_free_p) struct stream_sum sum = { 0 };
    CLEANUP(err_free_p) struct err *e = NULL;
    struct layer_stats stats;
    AUTOCLOSE int fd = memfd_create("layer", MFD_CLOEXEC), in = -1;

    if (top < 0)
        set_up();
    must(fd >= 0 && fs_write_all(fd, data, size) == 0 && lseek(fd, 0, SEEK_SET) == 0, "memfd");
    must(mkdirat(top, "in", 0755) == 0, "in");
    in = openat(top, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (stream_open(fd, "x", &caps, KEEP_NOTHING, -1, &s, &e) == 0 &&
        layer_unpack(s, "x", in, &caps, &stats, &e) == 0)
        (void)stream_finish(s, LAYER_SLACK, &sum, &e);
    outside_is_whole();
    must(fs_remove_tree(top, "in", NULL) == 0, "remove");
    return 0;
}
