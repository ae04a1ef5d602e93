/* image/main.c - petri-image, the program behind `petri image`: it alone loads the libraries that
 * image work needs. Its words are petri's own (cmd/image.c checks what people write):
 *
 *   petri-image import DATA [json] [KEY=VALUE]... -- SOURCE NAME
 *   petri-image ls DATA [json] [quiet] --
 *   petri-image inspect DATA [json] -- NAME
 *   petri-image rm DATA [json] -- NAME...
 *
 * Exit status: 0, 1 failed, 2 wrong words.
 */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/json.h"
#include "image/import.h"
#include "image/list.h"
#include "image/store.h"

static const uint64_t default_bytes = 32ULL << 30, default_entries = 1000000;

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    stopped = sig;
}

static void note(const char *text)
{
    AUTOSTR struct str line = STR_INIT;
    str_add(&line, "petri: ");
    str_add_escaped(&line, text, strlen(text));
    str_addc(&line, '\n');
    fflush(stdout);
    fwrite(line.p, 1, line.len, stderr);
}

static int fail(struct err *e, bool json)
{
    AUTOFREE char *text = err_text(e);
    int status = e && e->code == ERR_USAGE ? 2 : 1;

    if (json) {
        AUTOJSONW struct jsonw w = { 0 };
        jw_obj(&w, NULL);
        jw_obj(&w, "error");
        jw_str(&w, "code", err_code_name(e ? e->code : ERR_INTERNAL));
        jw_str(&w, "message", text);
        jw_end_obj(&w);
        jw_end_obj(&w);
        printf("%s\n", w.out.p);
    }
    note(text);
    err_free(e);
    return status;
}

static int answer(const struct str *out)
{
    if (out->len && fwrite(out->p, 1, out->len, stdout) != out->len)
        return 1;
    return 0;
}

/* argv taken apart: switches, KEY=VALUE words, and what follows the "--". */
struct words {
    bool json, quiet;
    char **settings, **operands;
    int n_settings, n_operands;
};

static void split(int argc, char **argv, struct words *ret)
{
    int i = 0;

    *ret = (struct words){ .settings = argv };
    for (; i < argc && strcmp(argv[i], "--"); i++) {
        if (!strcmp(argv[i], "json"))
            ret->json = true;
        else if (!strcmp(argv[i], "quiet"))
            ret->quiet = true;
        else
            ret->settings[ret->n_settings++] = argv[i];
    }
    i += i < argc;
    ret->operands = argv + i;
    ret->n_operands = argc - i;
}

/* --- import ---------------------------------------------------------------------------------- */

static int import_option(struct import_opts *o, const char *word, struct err **e)
{
    const char *eq = strchr(word, '=');
    size_t n = eq ? (size_t)(eq - word) : 0;
    AUTOFREE char *key = str_printf("%.*s", (int)n, word);
    const char *value = eq ? eq + 1 : "";

    if (!strcmp(key, "change")) {
        o->changed = true;
        return change_add(&o->change, value, e);
    }
    if (!strcmp(key, "message")) {
        o->message = value;
        o->changed = true;
        return 0;
    }
    if (!strcmp(key, "platform")) {
        o->platform = value;
        return 0;
    }
    if (!strcmp(key, "ref")) {
        o->ref = value;
        return 0;
    }
    if (!strcmp(key, "max-size")) {
        /* who says how large it may get has thought about it */
        o->caps.ratio = false;
        return parse_size(value, &o->caps.max_bytes, e);
    }
    if (!strcmp(key, "max-entries"))
        return parse_uint(value, UINT32_MAX, &o->caps.max_entries, e);
    return err_new(e, ERR_USAGE, "petri-image does not know '%s'", word);
}

static int import_answer(const struct import_result *r, bool json)
{
    AUTOSTR struct str text = STR_INIT;
    char size[24];

    if (json) {
        AUTOJSONW struct jsonw w = { .pretty = true };
        jw_obj(&w, NULL);
        jw_str(&w, "name", r->ref);
        jw_str(&w, "digest", r->digest);
        jw_u64(&w, "size", r->size);
        jw_u64(&w, "layers", r->layers);
        jw_u64(&w, "files", r->files);
        jw_u64(&w, "skipped", r->skipped);
        jw_str(&w, "architecture", r->arch);
        jw_end_obj(&w);
        printf("%s\n", w.out.p);
        return 0;
    }
    printf("%s\n", r->digest);
    format_size(r->size, size);
    str_addf(&text, "imported %s: %llu files, %s", r->ref, (unsigned long long)r->files, size);
    if (r->layers > 1)
        str_addf(&text, " in %llu layers", (unsigned long long)r->layers);
    if (r->skipped)
        str_addf(&text, "; left out %llu devices, pipes or sockets",
                 (unsigned long long)r->skipped);
    note(text.p);
    if (r->arch && strcmp(r->arch, oci_host_arch())) {
        AUTOFREE char *warn = str_printf("%s is for %s; this machine is %s and may not run it",
                                         r->ref, r->arch, oci_host_arch());
        note(warn);
    }
    return 0;
}

static int do_import(const char *data, const struct words *w)
{
    struct import_opts o = { .caps = { default_bytes, default_entries, true, &stopped } };
    CLEANUP(import_result_free_p) struct import_result r = { 0 };
    struct err *e = NULL;
    int rc = 0;

    for (int i = 0; i < w->n_settings && rc == 0; i++)
        rc = import_option(&o, w->settings[i], &e);
    if (rc == 0) {
        o.source = w->operands[0];
        o.name = w->operands[1];
        rc = import_run(data, &o, &r, &e);
    }
    change_free_p(&o.change);
    return rc < 0 ? fail(e, w->json) : import_answer(&r, w->json);
}

/* --- the others ------------------------------------------------------------------------------ */

static int do_ls(const char *data, const struct words *w)
{
    AUTOSTR struct str out = STR_INIT;
    struct err *e = NULL;

    if (list_images(data, w->json, w->quiet, &out, &e) < 0)
        return fail(e, w->json);
    return answer(&out);
}

static int do_inspect(const char *data, const struct words *w)
{
    AUTOSTR struct str out = STR_INIT;
    struct err *e = NULL;

    if (list_inspect(data, w->operands[0], w->json, &out, &e) < 0)
        return fail(e, w->json);
    return answer(&out);
}

static void rm_json(const struct removed *r)
{
    AUTOJSONW struct jsonw w = { .pretty = true };
    jw_obj(&w, NULL);
    jw_strv(&w, "removed", &r->names);
    jw_u64(&w, "blobs", r->blobs);
    jw_u64(&w, "layers", r->layers);
    jw_u64(&w, "layers_in_use", r->busy);
    jw_end_obj(&w);
    printf("%s\n", w.out.p);
}

static int do_rm(const char *data, const struct words *w)
{
    CLEANUP(store_close_p) struct store s = { .layers_fd = -1, .blobs_fd = -1 };
    CLEANUP(removed_free_p) struct removed r = { 0 };
    struct err *e = NULL;

    if (store_open(data, &s, &e) < 0 ||
        store_remove(&s, w->operands, (size_t)w->n_operands, &r, &e) < 0)
        return fail(e, w->json);
    if (w->json)
        rm_json(&r);
    else
        for (size_t i = 0; i < r.names.n; i++)
            printf("%s\n", r.names.v[i]);
    if (r.busy) {
        AUTOFREE char *text =
            str_printf("%llu layers are used by a running sandbox; they go with the "
                       "next petri image rm after it ended",
                       (unsigned long long)r.busy);
        note(text);
    }
    return 0;
}

static void set_up(void)
{
    struct sigaction sa = { .sa_handler = on_signal };
    struct rlimit nofile;

    umask(0077);
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* names in pax headers are UTF-8 */
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &nofile) == 0) {
        nofile.rlim_cur = nofile.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &nofile);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int operands;
        int (*run)(const char *data, const struct words *w);
    } verbs[] = {
        { "import", 2, do_import },
        { "ls", 0, do_ls },
        { "inspect", 1, do_inspect },
        { "rm", 1, do_rm },
    };
    struct words w;

    set_up();
    for (size_t i = 0; argc > 2 && i < ARRAY_LEN(verbs); i++) {
        split(argc - 3, argv + 3, &w);
        if (strcmp(argv[1], verbs[i].name) || w.n_operands < verbs[i].operands)
            continue;
        int status = verbs[i].run(argv[2], &w);
        if ((fflush(stdout) || ferror(stdout)) && !status) {
            note("can't write the answer to stdout");
            return 1;
        }
        return status;
    }
    note("petri-image is a part of petri; use: petri image --help");
    return 2;
}
