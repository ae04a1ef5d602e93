/* cmd/init.c - `petri init`: a petri.json that fits the project, with comments. */
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "cmd/config.h"
#include "runtime/sandbox/project.h"

static const struct {
    const char *file, *language;
} languages[] = {
    { "package.json", "JavaScript" },
    { "tsconfig.json", "TypeScript" },
    { "pyproject.toml", "Python" },
    { "requirements.txt", "Python" },
    { "setup.py", "Python" },
    { "Cargo.toml", "Rust" },
    { "go.mod", "Go" },
    { "pom.xml", "Java" },
    { "build.gradle", "Java" },
    { "build.gradle.kts", "Kotlin" },
    { "Gemfile", "Ruby" },
    { "composer.json", "PHP" },
    { "mix.exs", "Elixir" },
    { "CMakeLists.txt", "C and C++" },
    { "meson.build", "C and C++" },
    { "configure.ac", "C and C++" },
    { "Package.swift", "Swift" },
    { "dune-project", "OCaml" },
    { "build.zig", "Zig" },
    { "stack.yaml", "Haskell" },
};

/* Names of files with secrets, as patterns of mounts.hide. */
static const char *const secrets[] = {
    ".env",         ".env.*",         "*.pem",           "*.key",      "*.p12",
    "*.pfx",        "*.jks",          "id_rsa",          "id_ed25519", ".npmrc",
    ".pypirc",      ".netrc",         "*.tfvars",        "*.tfstate",  "credentials.json",
    "secrets",      "secrets.*",      "*-credentials.*", ".aws",       "service-account*.json",
    "config/*.key", "config/secrets", ".htpasswd",       "*.keystore",
};

static void find_languages(const char *project, struct strv *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(languages); i++) {
        AUTOFREE char *path = path_join(project, languages[i].file);
        if (fs_exists(path) && !strv_has(ret, languages[i].language))
            strv_add(ret, languages[i].language);
    }
}

static bool matches(const char *project, const char *pattern)
{
    AUTOSTR struct str s = STR_INIT;
    glob_t g = { 0 };

    for (const char *c = project; *c; c++)
        str_addf(&s, strchr("*?[]\\", *c) ? "\\%c" : "%c", *c);
    str_addf(&s, "/%s", pattern);
    int rc = glob(s.p, GLOB_NOSORT | GLOB_PERIOD, NULL, &g);
    globfree(&g);
    return rc == 0;
}

static char *make_text(const char *project)
{
    AUTOSTRV struct strv found = { 0 }, hide = { 0 };
    AUTOSTR struct str names = STR_INIT, s = STR_INIT;
    AUTOJSONW struct jsonw w = { 0 };

    find_languages(project, &found);
    for (size_t i = 0; i < found.n; i++)
        str_addf(&names, "%s%s", i ? ", " : "", found.v[i]);
    strv_add(&hide, ".env"); /* the file that comes later */
    for (size_t i = 1; i < ARRAY_LEN(secrets); i++)
        if (matches(project, secrets[i]))
            strv_add(&hide, secrets[i]);
    jw_strv(&w, NULL, &hide);
    str_add(&s,
            "{\n"
            "  // How petri runs this project. All keys: petri config schema; what counts here\n"
            "  // and why: petri config show --origin. What loosens the defaults waits until\n"
            "  // somebody has looked at it and said: petri config trust\n"
            "  \"sandbox\": {\n"
            "    // agents' tools run in a sandbox\n"
            "    \"enabled\": true,\n\n");
    str_addf(&s,
             "    // the system inside: this machine's own packages%s%s\n"
             "    \"image\": \"host\",\n\n",
             names.len ? ", as this project needs them for " : "", names.len ? names.p : "");
    str_add(&s,
            "    \"resources\": {\n"
            "      \"memory\": \"2G\",\n"
            "      \"cpus\": 2.0,\n"
            "      \"pids\": 256\n"
            "    },\n\n"
            "    // none, allowlist (domains in \"allow\"), limited (ports 80 and 443) or full\n"
            "    \"network\": \"limited\",\n\n"
            "    \"mounts\": {\n"
            "      // files with secrets, which are not there inside\n");
    str_addf(&s, "      \"hide\": %s\n    }\n  }\n}\n", w.out.p);
    return str_take(&s);
}

static int init_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(project_free_p) struct project pr = { 0 };
    AUTOFREE char *path = NULL, *text = NULL;
    AUTOCLOSE int fd = -1;
    const struct opt *o;
    const char *value = NULL;
    bool bad = false, print = false;
    struct err *e = NULL;
    char cwd[PATH_MAX];

    while ((o = cmd_next_opt(c, argc, argv, &value, &bad)))
        print |= strcmp(o->name, "print") == 0;
    if (bad)
        return 2;
    if (optind < argc)
        return cmd_usage(c, "'%s' is one word too many", argv[optind]);
    if (!getcwd(cwd, sizeof cwd))
        return cmd_fail(1, "the current directory: %s", strerror(errno));
    if (project_find(cwd, NULL, &pr, &e) < 0)
        return cmd_fail_err(1, e, false);
    text = make_text(pr.root);
    if (print) {
        fputs(text, stdout);
        return 0;
    }
    for (size_t i = 0; i < PROJECT_CONFIGS; i++) {
        AUTOFREE char *there = path_join(pr.root, project_configs[i]);
        if (fs_exists(there))
            return cmd_fail(1, "%s is there already; change it with petri config set", there);
    }
    path = path_join(pr.root, "petri.json");
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || fs_write_all(fd, text, strlen(text)) < 0)
        return cmd_fail(1, "write '%s': %s", path, strerror(errno));
    if (geteuid() == 0 && pr.st.st_uid && fchown(fd, pr.st.st_uid, pr.st.st_gid) < 0)
        return cmd_fail(1, "give '%s' to the project's owner: %s", path, strerror(errno));
    cmd_note("wrote %s", path);
    return 0;
}

static const struct opt init_opts[] = {
    { "print", 0, NULL, "print it and write nothing", NULL },
};

extern const struct cmd cmd_init;
const struct cmd cmd_init = {
    .name = "init",
    .summary = "write a petri.json that fits this project",
    .usage = "[--print]",
    .about = "Looks at the project's languages and at files that hold secrets, which are hidden "
             "from sandboxes. Nothing that exists is overwritten.",
    .opts = init_opts,
    .n_opts = ARRAY_LEN(init_opts),
    .usage_exit = 2,
    .run = init_run,
};
