/* tests/fuzz/proto.c - both ends of the exec protocol: frames from a socket, and an exec request. */
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

static void request(const uint8_t *data, size_t size)
{
    struct proto_request r = { 0 };
    char *frame = malloc(size + 1);

    memcpy(frame, data, size);
    frame[size] = 0;
    if (proto_parse_exec(frame, size, &r) == 0) {
        size_t n = strlen(r.cwd);
        for (char **a = r.argv; *a; a++)
            n += strlen(*a);
        for (char **a = r.env; *a; a++)
            n += strlen(*a);
        if (n > size)
            abort();
    }
    free(r.argv);
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    frames(data, size);
    request(data, size);
    return 0;
}
