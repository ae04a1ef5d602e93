/* The D-Bus client against a manager that answers well, badly, or not at all. What a real one does with
 * the request is tested in tests/vm. */
#include "runtime/driver/scope.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/str.h"
#include "tests/unit/check.h"

#define OK "OK 0123456789abcdef0123456789abcdef\r\n"
/* A message: byte order, type, flags, version, body length, serial, length of the fields. */
#define HEAD(type, body, fields) "l" type "\1\1" body "\0\0\0\1\0\0\0" fields "\0\0\0"
#define REPLY_TO(n) "\5\1u\0" n "\0\0\0" /* the only field: 8 bytes */

static const struct {
    const char *name, *answer;
    size_t n;
    const char *want; /* in the error; NULL: the scope was made */
} answers[] = {
#define A(name, text, want)                                                                        \
    {                                                                                              \
        name, text, sizeof text - 1, want                                                          \
    }
    A("refused", "REJECTED EXTERNAL\r\n", "refused the connection"),
    A("closed", "", "closed"),
    A("closed after the handshake", OK, "closed"),
    A("other byte order", OK "B\2\1\1\0\0\0\0\0\0\0\1\0\0\0\0", "strange"),
    A("too long", OK "l\2\1\1\xff\xff\xff\xff\1\0\0\0\0\0\0\0", "strange"),
    A("fields too long", OK "l\2\1\1\0\0\0\0\1\0\0\0\xff\xff\xff\xff", "strange"),
    A("says no", OK HEAD("\3", "\10", "\10") REPLY_TO("\1") "\3\0\0\0no!\0", "made no scope: no!"),
    A("says no, badly", OK HEAD("\3", "\10", "\10") REPLY_TO("\1") "\xff\0\0\0no!\0",
      "made no scope: "),
    A("field runs over", OK HEAD("\2", "\0", "\10") "\1\1o\0\xff\xff\xff\xff", "closed"),
    A("answers another call", OK HEAD("\2", "\0", "\10") REPLY_TO("\7"), "closed"),
    A("signal first, then yes",
      OK HEAD("\4", "\0", "\10") "\1\1u\0\1\0\0\0" HEAD("\2", "\0", "\10") REPLY_TO("\1"), NULL),
#undef A
};

/* One client, one answer, in pieces. */
static void serve(int listener, const char *answer, size_t n, size_t piece)
{
    char buf[4096];
    int fd = accept(listener, NULL, NULL);

    if (fd < 0 || read(fd, buf, sizeof buf) <= 0 || buf[0] || !strstr(buf + 1, "AUTH EXTERNAL "))
        _exit(1);
    for (size_t at = 0; at < n; at += piece) {
        if (fs_write_all(fd, answer + at, n - at < piece ? n - at : piece) < 0)
            break;
        usleep(1000);
    }
    _exit(0);
}

/* The last part of a group that this process is in already: so the move is seen at once. */
static char *own_group(void)
{
    AUTOFREE char *text = NULL;
    if (fs_read(AT_FDCWD, "/proc/self/cgroup", 1 << 16, &text, NULL, NULL) < 0)
        return NULL;
    for (char *save, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *slash = strrchr(l, '/');
        if (slash && slash[1])
            return str_dup(slash + 1);
    }
    return NULL;
}

static void test_answer(size_t i, size_t piece, const char *unit)
{
    CLEANUP(scope_free_p) struct scope *s = NULL;
    CLEANUP(err_free_p) struct err *e = NULL;
    struct sockaddr_un sa = { .sun_family = AF_UNIX, .sun_path = "systemd/private" };
    AUTOCLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc, status = 0;

    unlink(sa.sun_path);
    CHECK(bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0 && listen(fd, 1) == 0, "listen");
    pid_t pid = fork();
    if (pid == 0)
        serve(fd, answers[i].answer, answers[i].n, piece);
    rc = scope_request(unit, &s, &e);
    CHECK(rc == 0, "%s: request", answers[i].name);
    if (rc == 0)
        rc = scope_wait(s, &e);
    AUTOFREE char *text = e ? err_text(e) : str_dup("no error");
    CHECK((rc == 0) == !answers[i].want, "%s: %s", answers[i].name, text);
    CHECK(!answers[i].want || strstr(text, answers[i].want), "%s: %s", answers[i].name, text);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "%s: server", answers[i].name);
}

int main(void)
{
    AUTOFREE char *unit = own_group(), *run = str_printf("/run/user/%u", (unsigned)geteuid());
    struct scope *s = NULL;

    if (fs_is_dir(run)) {
        printf("'%s' is a real one: not touched\n", run);
        return 77;
    }
    signal(SIGPIPE, SIG_IGN);
    check_scratch();
    setenv("XDG_RUNTIME_DIR", check_dir, 1);
    CHECK(scope_request("x.scope", &s, NULL) == -ERR_UNSUPPORTED && !s, "nobody there");
    mkdir("systemd", 0700);
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        if (answers[i].want || unit) {
            test_answer(i, 4096, unit ? unit : "x.scope");
            test_answer(i, 7, unit ? unit : "x.scope");
        }
    }
    check_scratch_end();
    return check_done();
}
