/* tests/unit/init_proto.c - frames between a client and petri-init. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/init/proto.h"
#include "tests/unit/check.h"

#define OK(cond) CHECK(cond, "errno %d", errno)

static void pair(int sock[2])
{
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) == 0);
}

static void whole_frames(void)
{
    struct proto_header h;
    char *p = NULL, one;
    int sock[2], fds[3], n = 0, queued = 0, null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    pair(sock);
    OK(proto_send(sock[0], PROTO_SIGNAL, "1234", 4, &null, 1) == 0);
    OK(recv(sock[1], &one, 1, MSG_PEEK) == 1);
    OK(ioctl(sock[1], FIONREAD, &queued) == 0 && queued == sizeof h + 4);
    OK(proto_recv(sock[1], &h, &p, fds, 3, &n, NULL) == 0);
    OK(h.type == PROTO_SIGNAL && h.len == 4 && n == 1 && strcmp(p, "1234") == 0);
    free(p);
    close(fds[0]);
    /* a descriptor that was not asked for */
    OK(proto_send(sock[0], PROTO_SIGNAL, "1234", 4, &null, 1) == 0);
    OK(proto_recv(sock[1], &h, &p, fds, 0, &n, NULL) == -1 && errno == EPROTO);
    close(sock[0]);
    close(sock[1]);
    close(null);
}

static void never_waits(void)
{
    static char big[64 << 10];
    int sock[2], i, r = 0;

    pair(sock);
    for (i = 0; i < 1000 && r == 0; i++)
        r = proto_send_now(sock[0], PROTO_FS_OK, big, sizeof big, NULL, 0);
    OK(r == -1 && errno == EAGAIN);
    close(sock[1]);
    OK(proto_send_now(sock[0], PROTO_FS_OK, big, 1, NULL, 0) == -1 && errno == EPIPE);
    OK(proto_send(sock[0], PROTO_FS_OK, big, PROTO_MAX + 1, NULL, 0) == -1 && errno == E2BIG);
    close(sock[0]);
}

static int receive(uint32_t magic, uint16_t version, uint16_t type, char **ret_p)
{
    struct proto_header h = { .magic = magic, .version = version, .type = type, .len = 8 };
    int sock[2], n, r;

    pair(sock);
    OK(write(sock[0], &h, sizeof h) == sizeof h);
    OK(write(sock[0], "\3\0\3\0new", 8) == 8);
    r = proto_recv(sock[1], &h, ret_p, NULL, 0, &n, NULL);
    close(sock[0]);
    close(sock[1]);
    return r;
}

static void versions(void)
{
    struct proto_hello hello = { 0 };
    const char *petri = NULL;
    char *p = NULL;

    OK(receive(PROTO_MAGIC, PROTO_VERSION, PROTO_EXIT, &p) == 0);
    free(p);
    OK(receive(PROTO_MAGIC, PROTO_VERSION + 1, PROTO_EXIT, &p) == -1 && errno == EPROTONOSUPPORT);
    OK(receive(PROTO_MAGIC, PROTO_OLDEST - 1, PROTO_EXEC, &p) == -1 && errno == EPROTONOSUPPORT);
    OK(receive(1, PROTO_VERSION, PROTO_EXIT, &p) == -1 && errno == EPROTO);
    /* a greeting comes through in any version: it says who is there */
    OK(receive(PROTO_MAGIC, 9, PROTO_HELLO, &p) == 0);
    OK(proto_check_hello(p, 8, &hello, &petri) == -1 && errno == EPROTONOSUPPORT);
    OK(hello.version == 3 && hello.oldest == 3 && petri && strcmp(petri, "new") == 0);
    OK(proto_check_hello(p, 3, &hello, &petri) == -1 && errno == EPROTO);
    hello = (struct proto_hello){ .version = PROTO_VERSION + 5, .oldest = PROTO_VERSION };
    memcpy(p, &hello, sizeof hello);
    OK(proto_check_hello(p, 8, &hello, &petri) == 0);
    free(p);
}

/* A frame of `words` (NUL-separated, its own end included) behind a head. */
static size_t frame(char *buf, const void *head, size_t n_head, const char *words, size_t n_words)
{
    memcpy(buf, head, n_head);
    memcpy(buf + n_head, words, n_words);
    buf[n_head + n_words] = '\0';
    return n_head + n_words;
}

static int parse_serve(uint32_t n_env, const char *words, size_t n)
{
    struct proto_serve head = { .n_env = n_env };
    struct proto_serving s = { 0 };
    char buf[256];
    int r = proto_parse_serve(buf, frame(buf, &head, sizeof head, words, n), &s);
    free(s.env);
    return r;
}

static int parse_fs(uint32_t n_paths, const char *words, size_t n)
{
    struct proto_fs head = { .op = FS_READ, .n_paths = n_paths };
    struct proto_fs_request r;
    char buf[256];
    return proto_parse_fs(buf, frame(buf, &head, sizeof head, words, n), &r);
}

static void requests(void)
{
    OK(parse_serve(2, "/\0A=1\0B=2", 10) == 0);
    OK(parse_serve(0, "/", 2) == 0);
    OK(parse_serve(1, "/\0A=1\0B=2", 10) == -1); /* more than it says */
    OK(parse_serve(3, "/\0A=1\0B=2", 10) == -1); /* less */
    OK(parse_serve(2, "/\0A=1\0B=2", 9) == -1);  /* not terminated */
    OK(parse_serve(0xffffffff, "/\0A=1\0B=2", 10) == -1);
    OK(parse_serve(0, "", 0) == -1);
    OK(parse_fs(0, "", 0) == 0);
    OK(parse_fs(1, "a", 2) == 0);
    OK(parse_fs(2, "a\0b", 4) == 0);
    OK(parse_fs(2, "a", 2) == -1);
    OK(parse_fs(1, "a", 1) == -1);
    OK(parse_fs(1, "a\0b", 4) == -1);
    OK(parse_fs(3, "a\0b\0c", 6) == -1);
    OK(parse_fs(0, "a", 2) == -1);
}

int main(void)
{
    whole_frames();
    never_waits();
    versions();
    requests();
    return check_done();
}
