/* cmd/config_change.c - petri config set, unset, trust, untrust. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/json.h"
#include "cmd/config_cmds.h"
#include "runtime/config/trust.h"
#include "runtime/sandbox/project.h"

static char *this_project(struct err **e)
{
    CLEANUP(project_free_p) struct project pr = { 0 };
    char cwd[PATH_MAX];
    if (!getcwd(cwd, sizeof cwd)) {
        err_sys(e, "the current directory");
        return NULL;
    }
    return project_find(cwd, NULL, &pr, e) == 0 ? TAKE_PTR(pr.root) : NULL;
}

/* The file that `config set` writes; a link to it is followed in the user's case only. */
static char *file_to_set(bool user, struct err **e)
{
    AUTOFREE char *dir = user ? config_user_dir() : this_project(e);
    AUTOFREE char *path = NULL, *other = NULL;
    char *real;

    if (!dir) {
        if (user)
            err_new(e, ERR_NOT_FOUND, "no home directory: set HOME or XDG_CONFIG_HOME");
        return NULL;
    }
    path = path_join(dir, user ? "petri/config.json" : "petri.json");
    other = path_join(dir, "petri.jsonc");
    if (!user)
        return fs_exists(other) && !fs_exists(path) ? TAKE_PTR(other) : TAKE_PTR(path);
    real = fs_realpath(path);
    return real ? real : TAKE_PTR(path);
}

static int write_file(const char *path, const char *text, size_t len, struct err **e)
{
    AUTOFREE char *dir = str_dup(path);
    struct stat st;
    bool old = lstat(path, &st) == 0;
    int rc;

    *strrchr(dir, '/') = '\0';
    if (old && !S_ISREG(st.st_mode))
        return err_new(e, ERR_INVALID, "'%s' is not a plain file", path);
    if ((rc = fs_mkdirs(dir, 0700, e)) < 0 ||
        (rc = fs_write_atomic(AT_FDCWD, path, text, len, old ? st.st_mode & 0777 : 0644, e)) < 0)
        return rc;
    if (old && st.st_uid != geteuid() && lchown(path, st.st_uid, st.st_gid) < 0)
        return err_sys(e, "give '%s' back to its owner", path);
    return 0;
}

/* The value as it stands in a file; NULL after the mistake was printed. */
static char *value_json(const struct config_key *k, const char *text)
{
    AUTOSTRV struct strv words = { 0 };
    AUTOJSONW struct jsonw w = { 0 };
    AUTOFREE char *wrong = key_words_of_text(k, text, &words);

    for (size_t i = 0; !wrong && i < words.n; i++)
        if (!strstr(words.v[i], "{env:") && !strstr(words.v[i], "{file:"))
            wrong = key_check(k, words.v[i]);
    if (wrong) {
        cmd_fail(1, "sandbox.%s: %s", k->name, wrong);
        return NULL;
    }
    key_write(k, &words, &w, NULL);
    return str_take(&w.out);
}

/* What `set` and `unset` have in common: words, key, the file and its text (NULL: it is not there yet). */
struct change {
    struct config_words w;
    char *path, *text;
    size_t key, len;
};

static void change_free_p(struct change *x)
{
    config_words_free_p(&x->w);
    free(x->path);
    free(x->text);
}

static int change_begin(const struct cmd *c, int argc, char **argv, size_t words, struct change *x)
{
    struct err *e = NULL;
    int key;

    if (!config_parse(c, argc, argv, words, words, &x->w) ||
        (key = config_key_of(c, x->w.operands.v[0])) < 0)
        return 2;
    x->key = (size_t)key;
    if (x->w.user && x->w.project)
        return cmd_usage(c, "--user or --project, not both");
    if (!(x->path = file_to_set(x->w.user, &e)) ||
        (fs_exists(x->path) &&
         fs_read(AT_FDCWD, x->path, JSONC_MAX_SIZE, &x->text, &x->len, &e) < 0))
        return cmd_fail_err(1, e, false);
    return 0;
}

static int wrong_place(const struct change *x, struct err *e)
{
    AUTOFREE char *why = err_text(e);
    err_free(e);
    return cmd_fail(1, "%s:%s", x->path, why);
}

int config_set_run(const struct cmd *c, int argc, char **argv)
{
    static const char empty[] = "{\n  \"sandbox\": {\n  }\n}\n";
    CLEANUP(change_free_p) struct change x = { 0 };
    AUTOFREE char *value = NULL;
    AUTOSTR struct str out = STR_INIT;
    struct err *e = NULL;
    int rc = change_begin(c, argc, argv, 2, &x);

    if (rc)
        return rc;
    if (config_keys[x.key].type == KEY_KEYS && !x.w.user)
        return cmd_fail(1, "only the user's and the system's files can lock keys: --user");
    if (!(value = value_json(&config_keys[x.key], x.w.operands.v[1])))
        return 1;
    if (config_edit(x.text ? x.text : empty, x.text ? x.len : strlen(empty), x.key, value, &out,
                    &e) < 0)
        return wrong_place(&x, e);
    if (write_file(x.path, out.p, out.len, &e) < 0)
        return cmd_fail_err(1, e, false);
    cmd_note("%s: %s = %s", x.path, config_keys[x.key].name, value);
    return 0;
}

int config_unset_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(change_free_p) struct change x = { 0 };
    AUTOSTR struct str out = STR_INIT;
    struct err *e = NULL;
    bool found = false;
    int rc = change_begin(c, argc, argv, 1, &x);

    if (rc)
        return rc;
    if (x.text && config_unset(x.text, x.len, x.key, &out, &found, &e) < 0)
        return wrong_place(&x, e);
    if (!found)
        return cmd_fail(
            1, "'%s' is not set in %s; petri config show --origin says where values come from",
            config_keys[x.key].name, x.path);
    if (write_file(x.path, out.p, out.len, &e) < 0)
        return cmd_fail_err(1, e, false);
    cmd_note("%s: %s is not set any more", x.path, config_keys[x.key].name);
    return 0;
}

/* --- trust --------------------------------------------------------------------------------------- */

static bool person_agrees(size_t n)
{
    char answer[16] = "";
    fprintf(stderr, "Trust %s? [y/N] ", n > 1 ? "these files" : "this file");
    fflush(stderr);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* What waits in all blocks of the project's files, and the files. */
struct waits {
    struct strv at, files, texts;
};

static void waits_free_p(struct waits *w)
{
    strv_free_p(&w->at);
    strv_free_p(&w->files);
    strv_free_p(&w->texts);
}

/* What is shown is what is trusted: a file that is read again must be the same. */
static int collect(const struct config *c, struct waits *ret)
{
    for (size_t i = 0; i < c->waiting_at.n; i++)
        if (!strv_has(&ret->at, c->waiting_at.v[i]))
            strv_add(&ret->at, c->waiting_at.v[i]);
    for (size_t i = 0; i < c->untrusted.n; i++) {
        const char *file = c->untrusted.v[i], *text = c->untrusted_text.v[i];
        size_t k = 0;
        while (k < ret->files.n && strcmp(ret->files.v[k], file) != 0)
            k++;
        if (k == ret->files.n) {
            strv_add(&ret->files, file);
            strv_add(&ret->texts, text);
        } else if (strcmp(ret->texts.v[k], text) != 0) {
            cmd_fail(1, "%s: it changed just now; look again", file);
            return -1;
        }
    }
    return 0;
}

/* What an agent is given is trusted with the file, and so is shown. */
static int collect_all(const struct config_words *w, const struct paths *paths, struct waits *ret,
                       char **ret_project)
{
    CLEANUP(config_free_p) struct config *c = configured_load(&w->how, paths, false, ret_project);

    if (!c || collect(c, ret) < 0)
        return -1;
    if (c->agents.n > CONFIG_MAX_AGENTS) {
        cmd_fail(1, "the project's files name more than %d agents; nobody can look at all of that",
                 CONFIG_MAX_AGENTS);
        return -1;
    }
    for (size_t i = 0; i < c->agents.n; i++) {
        struct configured how = w->how;
        how.agent = c->agents.v[i];
        CLEANUP(config_free_p) struct config *its = configured_load(&how, paths, false, NULL);
        if (!its || collect(its, ret) < 0)
            return -1;
    }
    return 0;
}

int config_trust_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(config_words_free_p) struct config_words w = { 0 };
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    CLEANUP(waits_free_p) struct waits all = { 0 };
    AUTOFREE char *project = NULL;
    struct err *e = NULL;

    if (!config_parse(c, argc, argv, 0, 0, &w))
        return 2;
    if (paths_find(&paths, &e) < 0)
        return cmd_fail_err(1, e, false);
    if (collect_all(&w, &paths, &all, &project) < 0)
        return 1;
    if (!project)
        return cmd_fail(1, "no project here; go into one");
    if (!all.files.n) {
        cmd_note("nothing here waits for trust");
        return 0;
    }
    for (size_t i = 0; i < all.at.n; i++) {
        AUTOSTR struct str line = STR_INIT;
        str_add_escaped(&line, all.at.v[i], strlen(all.at.v[i]));
        puts(line.p);
    }
    fflush(stdout);
    if (!w.yes && !(isatty(0) && isatty(2)))
        return cmd_fail(1, "a person must agree: on a terminal, or with --yes");
    if (!w.yes && !person_agrees(all.files.n))
        return cmd_fail(1, "nothing was trusted");
    for (size_t i = 0; i < all.files.n; i++) {
        const char *text = all.texts.v[i];
        if (trust_add(paths.data, all.files.v[i], text, strlen(text), &e) < 0)
            return cmd_fail_err(1, e, false);
        cmd_note("trusted until it changes: %s", all.files.v[i]);
    }
    return 0;
}

int config_untrust_run(const struct cmd *c, int argc, char **argv)
{
    static const char *const names[] = { "wonopcode.json", "wonopcode.jsonc", "petri.json",
                                         "petri.jsonc" };
    CLEANUP(config_words_free_p) struct config_words w = { 0 };
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    AUTOFREE char *project = NULL;
    struct err *e = NULL;
    bool any = false;

    if (!config_parse(c, argc, argv, 0, 0, &w))
        return 2;
    if (paths_find(&paths, &e) < 0 || !(project = this_project(&e)))
        return cmd_fail_err(1, e, false);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTOFREE char *path = path_join(project, names[i]);
        bool had = false;
        if (trust_remove(paths.data, path, &had, &e) < 0)
            return cmd_fail_err(1, e, false);
        if (had)
            cmd_note("no longer trusted: %s", path);
        any |= had;
    }
    if (!any)
        cmd_note("no file of this project was trusted");
    return 0;
}
