/* tests/fuzz/proto.c - both ends of the exec protocol: frames from a socket, and what is in them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/init/proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void frames(const uint8_t *data, size_t size)
{
    int sock[2];

    if (size > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0)
        return;
    if (write(sock[0], data, size) == (ssize_t)size) {
        struct proto_header h;
        char *p;
        int fds[1], n;
        close(sock[0]);
        sock[0] = -1;
        while (proto_recv(sock[1], &h, &p, fds, 1, &n, NULL) == 0) {
            if (strlen(p) > h.len)
                abort();
            free(p);
        }
    }
    if (sock[0] >= 0)
        close(sock[0]);
    close(sock[1]);
}

/* A frame as proto_recv() gives it. */
static char *copy(const uint8_t *data, size_t size)
{
    char *frame = malloc(size + 1);
    memcpy(frame, data, size);
    frame[size] = 0;
    return frame;
}

static size_t lengths(char *const *words)
{
    size_t n = 0;
    for (; *words; words++)
        n += strlen(*words) + 1;
    return n;
}

static void exec_request(const uint8_t *data, size_t size)
{
    struct proto_request r = { 0 };
    char *frame = copy(data, size);

    if (proto_parse_exec(frame, size, &r) == 0 &&
        sizeof r.head + strlen(r.cwd) + 1 + lengths(r.argv) + lengths(r.env) != size)
        abort();
    free(r.argv);
    free(frame);
}

static void serve_request(const uint8_t *data, size_t size)
{
    struct proto_serving s = { 0 };
    char *frame = copy(data, size);

    if (proto_parse_serve(frame, size, &s) == 0 &&
        sizeof s.head + strlen(s.cwd) + 1 + lengths(s.env) != size)
        abort();
    free(s.env);
    free(frame);
}

static void fs_request(const uint8_t *data, size_t size)
{
    struct proto_fs_request r;
    char *frame = copy(data, size);

    if (proto_parse_fs(frame, size, &r) == 0) {
        size_t n = sizeof r.head;
        for (int i = 0; i < 2; i++) {
            if (!r.path[i] != (r.head.n_paths <= (uint32_t)i))
                abort();
            n += r.path[i] ? strlen(r.path[i]) + 1 : 0;
        }
        if (n != size)
            abort();
    }
    free(frame);
}

static void hello(const uint8_t *data, size_t size)
{
    struct proto_hello h;
    const char *petri = NULL;
    char *frame = copy(data, size);

    proto_check_hello(frame, size, &h, &petri);
    if (petri && strlen(petri) > size)
        abort();
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    frames(data, size);
    exec_request(data, size);
    serve_request(data, size);
    fs_request(data, size);
    hello(data, size);
    return 0;
}
