/* cmd/logs.c - petri logs and events: what sandboxes did, from files that grow. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/termfilter.h"
#include "cmd/attach.h"
#include "cmd/cmd.h"
#include "cmd/life.h"
#include "runtime/sandbox/control.h"

/* A job that is over has a record; one whose sandbox ended otherwise writes no more, either. */
static bool job_lives(const struct paths *paths, const char *id, unsigned number)
{
    AUTOFREE char *dir = state_dir(paths, id);
    AUTOFREE char *record = str_printf("%s/jobs/%u.json", dir, number);
    AUTOSTATE struct state s = { 0 };
    return !fs_exists(record) && state_read(paths, id, &s, NULL) == 0 && s.running;
}

/* Prints what `fd` has, a terminal's filtered; with `follow` until the job is over. */
static void print_file(const struct life *f, const char *id, unsigned number, int fd, bool follow)
{
    bool tty = isatty(1);
    struct termfilter filter;
    char buf[65536], shown[2 * 65536 + TERMFILTER_ROOM];
    ssize_t n;

    termfilter_init(&filter);
    for (bool lives = true; lives;) {
        lives = follow && job_lives(&f->paths, id, number);
        while ((n = RETRY(read(fd, buf, sizeof buf / 2))) > 0) {
            size_t m = tty ? termfilter_run(&filter, buf, (size_t)n, shown) : (size_t)n;
            fwrite(tty ? shown : buf, 1, m, stdout);
        }
        if (fflush(stdout) != 0)
            return;
        if (lives)
            (void)poll(NULL, 0, 100);
    }
}

static void json_log(unsigned job, const char *path)
{
    AUTOJSONW struct jsonw w = { 0 };
    AUTOFREE char *out = NULL;
    size_t n = 0;

    if (fs_read(AT_FDCWD, path, 256 << 20, &out, &n, NULL) < 0)
        return;
    jw_obj(&w, NULL);
    jw_strf(&w, "job", "%u", job);
    cmd_json_bytes(&w, "output", out, n);
    jw_end_obj(&w);
    puts(w.out.p);
}

static int logs_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOFREE char *id = NULL, *dir = NULL;
    struct err *e = NULL;
    uint64_t job = 0;
    const char *last;
    unsigned shown = 0;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f.n_words > 2)
        return cmd_usage(c, "'%s': too many words", f.words[2]);
    if (f.json && f.follow)
        return cmd_usage(c, "--json prints what is there; leave -f out");
    last = f.n_words ? f.words[f.n_words - 1] : NULL;
    if (last && strspn(last, "0123456789") == strlen(last) && strlen(last) < 6)
        (void)parse_uint(last, 1000000, &job, NULL);
    if (paths_find(&f.paths, &e) < 0 ||
        sandbox_find(&f.paths, f.n_words > (job ? 1 : 0) ? f.words[0] : NULL, NULL, &id, &e) < 0)
        return cmd_fail_err(1, e, f.json);
    dir = state_dir(&f.paths, id);
    for (unsigned i = job ? (unsigned)job : 1; i < 1000000; i++) {
        AUTOFREE char *path = str_printf("%s/jobs/%u.out", dir, i),
                      *next = str_printf("%s/jobs/%u.out", dir, i + 1);
        AUTOCLOSE int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            break;
        shown++;
        if (f.json)
            json_log(i, path);
        else
            print_file(&f, id, i, fd, f.follow && (job || !fs_exists(next)));
        if (job)
            break;
    }
    if (!shown && job)
        err_new(&e, ERR_NOT_FOUND, "no job %llu; petri jobs lists them", (unsigned long long)job);
    return e ? cmd_fail_err(1, e, f.json) : 0;
}

static void print_promote(const struct json *j)
{
    AUTOSTR struct str why = STR_INIT;
    uint64_t files = 0, stay = 0;

    json_u64(j, "files", &files);
    json_u64(j, "stay", &stay);
    if (json_str(j, "error"))
        str_add_escaped(&why, json_str(j, "error"), strlen(json_str(j, "error")));
    printf("  %llu went to the project, %llu stay%s%s", (unsigned long long)files,
           (unsigned long long)stay, why.len ? ": " : "", why.len ? why.p : "");
}

static void print_event(const char *line, bool json)
{
    AUTOJSON struct json *j = NULL;
    AUTOSTR struct str name = STR_INIT;
    const char *who;

    if (json) {
        puts(line);
        return;
    }
    if (json_parse(line, strlen(line), &j, NULL) < 0)
        return;
    who = json_str(j, "name") ? json_str(j, "name") : json_str(j, "id");
    str_add_escaped(&name, who ? who : "-", strlen(who ? who : "-"));
    printf("%s  %-10s  %s", json_str(j, "time"), json_str(j, "event"), name.p);
    if (str_eq(json_str(j, "event"), "promote"))
        print_promote(j);
    puts("");
}

void life_lines(const char *path, bool follow, void (*print)(const char *line, bool json),
                bool json)
{
    struct stat here, there;
    FILE *in = NULL;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    do {
        /* a file that became long starts anew under its name */
        if (in && (fstat(fileno(in), &here) < 0 || stat(path, &there) < 0 ||
                   here.st_ino != there.st_ino)) {
            fclose(in);
            in = NULL;
        }
        if (!in)
            in = fopen(path, "re");
        if (in)
            clearerr(in);
        while (in && (n = getline(&line, &cap, in)) > 0) {
            line[strcspn(line, "\n")] = '\0';
            print(line, json);
        }
        if (follow && (fflush(stdout) != 0 || poll(NULL, 0, 100) < 0))
            break;
    } while (follow);
    free(line);
    if (in)
        fclose(in);
}

static int events_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOFREE char *path = NULL;
    struct err *e = NULL;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f.n_words)
        return cmd_usage(c, "events takes no names");
    if (paths_find(&f.paths, &e) < 0)
        return cmd_fail_err(1, e, f.json);
    path = path_join(f.paths.data, "events.jsonl");
    life_lines(path, f.follow, print_event, f.json);
    return 0;
}

static const struct opt events_opts[] = {
    { "follow", 'f', NULL, "go on with what comes", NULL },
    { "json", 0, NULL, "print an object a line", NULL },
};
static const struct opt logs_opts[] = {
    { "follow", 'f', NULL, "go on with what comes", NULL },
    { "json", 0, NULL, "print an object a job", NULL },
};

const struct cmd cmd_logs = {
    .name = "logs",
    .summary = "the output of jobs",
    .usage = "[-f] [--json] [SANDBOX] [JOB]",
    .opts = logs_opts,
    .n_opts = ARRAY_LEN(logs_opts),
    .complete = "job",
    .usage_exit = 2,
    .run = logs_run,
};
const struct cmd cmd_events = {
    .name = "events",
    .summary = "what happened to sandboxes",
    .usage = "[-f] [--json]",
    .opts = events_opts,
    .n_opts = ARRAY_LEN(events_opts),
    .usage_exit = 2,
    .run = events_run,
};
