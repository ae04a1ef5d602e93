#include "runtime/change/risk.h"

#include <string.h>

#include "runtime/change/risk_impl.h"

/* Worst first within a class; the first words of a class are what most people would want to know. */
const struct risk_rule risk_rules[] = {
    /* refuse: it runs on the host, or names a place outside, without anybody starting it */
    { "git-dir", RISK_REFUSE, ".git",
      "a name that some systems take for the git repository itself" },
    { "other-vcs", RISK_REFUSE, ".hg .hgrc .sl .jj .svn .bzr .repo",
      "another version control's own files: its next command may run what they say" },
    { "git-hooks", RISK_REFUSE,
      ".husky .githooks .git-hooks .hooks lefthook.yml .lefthook.yml lefthook.toml",
      "git may run it at the next commit" },
    { "git-modules", RISK_REFUSE, ".gitmodules gi7eba~?",
      "git fetches and checks out what it names" },
    { "bare-repository", RISK_REFUSE, NULL,
      "a directory that git takes for a repository with its own configuration" },
    { "hidden", RISK_REFUSE, NULL,
      "a file that was hidden from the sandbox lies at this path on the host" },
    { "symlink-out", RISK_REFUSE, NULL, "a link that leads out of the project" },
    { "special-file", RISK_REFUSE, NULL, "neither a file, a directory nor a link" },
    { "editor", RISK_REFUSE,
      ".vscode .idea .devcontainer .devcontainer.json .fleet .zed *.code-workspace .vs "
      "*.sublime-project",
      "an editor may run tasks from it when the project is opened" },
    { "editor-rc", RISK_REFUSE,
      ".exrc .vimrc .nvimrc .nvim.lua .lvimrc .local.vimrc .dir-locals.el .dir-locals-2.el "
      ".gdbinit "
      ".lldbinit .irbrc .pryrc",
      "an editor, debugger or console runs it when it is started there" },
    { "environment", RISK_REFUSE,
      ".envrc .direnv .mise.toml mise.toml .mise .rtx.toml .tool-versions .autoenv* .bashrc "
      ".bash_profile .profile .zshrc .zshenv .zprofile flake.nix shell.nix default.nix devbox.json "
      ".devbox .devenv devenv.nix .flox",
      "a shell runs it on entering the directory" },
    { "agent", RISK_REFUSE,
      ".mcp.json mcp.json .claude .cursor .codex .gemini .aider.conf.yml .continue .windsurf .roo "
      ".kiro .amazonq .opencode opencode.json .wonopcode .junie .crush .crush.json crush.json "
      ".qwen "
      ".trae .kilocode .factory .augment",
      "an agent on the host starts programs or takes permissions from it" },
    { "package-config", RISK_REFUSE,
      ".npmrc .yarnrc .yarnrc.yml .yarn .pnpmfile.cjs bunfig.toml pip.conf pip.ini .pypirc "
      ".cargo/config* "
      ".bundle/config .mvn gradle-wrapper.* nuget.config .condarc uv.toml",
      "it says where packages come from or what runs when they are installed" },
    { "pre-commit", RISK_REFUSE,
      ".pre-commit-config.y*ml .pre-commit-hooks.y*ml .overcommit.yml .lintstagedrc* "
      "lint-staged.config.*",
      "programs that run at the next commit" },
    { "petri-config", RISK_REFUSE,
      "petri.json petri.jsonc wonopcode.json wonopcode.jsonc petri/config.json "
      "wonopcode/config.json wonopcode/config.jsonc .petri",
      "petri's own rules, for a project or for all of a user's" },
    { "tool-binaries", RISK_REFUSE,
      ".venv/bin venv/bin .venv/scripts venv/scripts .venv/pyvenv.cfg venv/pyvenv.cfg "
      "node_modules/.bin sitecustomize.py "
      "usercustomize.py *.pth",
      "programs that commands on the host find first" },
    /* read: somebody must have looked at it */
    { "git-attributes", RISK_READ, ".gitattributes gi7d29~? .gitconfig",
      "it can name filters and drivers that git runs" },
    { "instructions", RISK_READ,
      "agents.md agent.md claude.md claude.local.md gemini.md .cursorrules .windsurfrules "
      ".clinerules copilot-instructions.md",
      "agents take orders from it" },
    { "ci", RISK_READ,
      ".github .gitlab .gitlab-ci.yml .gitlab-ci.yaml .circleci .travis.yml azure-pipelines.yml "
      ".azure-pipelines jenkinsfile .buildkite "
      ".drone.yml .woodpecker* bitbucket-pipelines.yml appveyor.yml .cirrus.yml .forgejo .gitea "
      "cloudbuild.yaml .pipelines",
      "it runs in CI, with its secrets" },
    { "build", RISK_READ,
      "makefile gnumakefile *.mk cmakelists.txt *.cmake configure configure.ac meson.build "
      "justfile .justfile taskfile.yml rakefile gemfile "
      "*.gemspec package.json setup.py setup.cfg pyproject.toml conftest.py noxfile.py tox.ini "
      "tasks.py build.rs build.zig build.gradle* "
      "settings.gradle* pom.xml build.sbt mix.exs *.csproj *.props *.targets dockerfile* "
      "containerfile docker-compose*.y*ml compose.y*ml "
      "vagrantfile build.bazel workspace.bazel *.bzl webpack.config.* vite.config.* "
      "vitest.config.* jest.config.* rollup.config.* "
      "eslint.config.* .eslintrc* babel.config.* gulpfile.* gruntfile.* next.config.* "
      "tailwind.config.* postcss.config.* procfile .babelrc* .prettierrc* prettier.config.* "
      ".stylelintrc* stylelint.config.* .pylintrc pylintrc .rubocop.yml .rspec .bazelrc .pnp.*js "
      "rust-toolchain*",
      "building or testing the project runs what it says" },
    { "secret-file", RISK_READ,
      ".env .env.* .netrc .git-credentials .pgpass id_rsa id_ecdsa id_ed25519 id_dsa *.pem *.key "
      "*.p12 *.pfx *.keystore *.jks "
      ".htpasswd .aws .ssh .gnupg .docker/config.json .kube credentials.json",
      "a place for secrets" },
    { "secret", RISK_READ, NULL, "text that looks like a key or password" },
    { "invisible", RISK_READ, NULL,
      "characters that can't be seen or that change the order of what is" },
    { "odd-name", RISK_READ, NULL, "a name with characters that can't be seen" },
    { "executable", RISK_READ, NULL, "can be started as a program from now on" },
    { "shebang", RISK_READ, NULL, "a script that names its own interpreter" },
    { "lockfile", RISK_READ, NULL, "the lock file changed and its manifest did not" },
    { "test-removed", RISK_READ, NULL, "a test is gone or told not to run" },
    { "many-deletions", RISK_READ, NULL, "many lines go: more than 50, or a fifth of the file" },
    { "binary", RISK_READ, NULL, "content that can't be read as text" },
    { "large", RISK_READ, NULL, "more than 1 MB" },
    { "unreadable", RISK_READ, NULL, "one side can't be read, so nobody can say what changed" },
    /* note: worth a word */
    { "dependency", RISK_NOTE,
      "package.json requirements*.txt pyproject.toml pipfile cargo.toml go.mod gemfile "
      "composer.json pom.xml build.gradle* "
      "environment.yml pubspec.yaml mix.exs",
      "it may bring new dependencies" },
    { "generated", RISK_NOTE,
      "*.min.js *.min.css *_pb2.py *_pb2_grpc.py *.pb.go *.pb.cc *.pb.h *.generated.* *.g.dart "
      "*.designer.cs *.map *.snap",
      "looks like the output of a tool" },
    { "setuid", RISK_NOTE, NULL, "a set-uid or set-gid bit that promote leaves out" },
};
const size_t risk_n_rules = ARRAY_LEN(risk_rules);

const char *risk_class_name(enum risk_class c)
{
    static const char *const names[] = { "refuse", "read", "note" };
    return names[c];
}

const struct risk_rule *risk_find(const char *code)
{
    for (size_t i = 0; i < risk_n_rules; i++)
        if (strcmp(risk_rules[i].code, code) == 0)
            return &risk_rules[i];
    return NULL;
}

int risk_worst(const struct change *ch)
{
    int worst = RISK_NOTE + 1;
    for (size_t i = 0; i < ch->n_risks; i++)
        if ((int)ch->risks[i].rule->class < worst)
            worst = (int)ch->risks[i].rule->class;
    return worst;
}

/* --- path rules ------------------------------------------------------------------------------------ */

/* One name of a pattern: letters, "*" and "?". It is not NUL-terminated. */
struct glob {
    const char *p;
    size_t n;
};

static bool glob_fits(struct glob g, const char *name)
{
    const char *star = NULL, *back = NULL; /* where to go on when the last "*" must take more */
    size_t i = 0;

    while (*name) {
        if (i < g.n && g.p[i] == '*') {
            star = g.p + ++i;
            back = name;
        } else if (i < g.n && (g.p[i] == '?' || g.p[i] == *name)) {
            i++;
            name++;
        } else if (star) {
            i = (size_t)(star - g.p);
            name = ++back;
        } else {
            return false;
        }
    }
    while (i < g.n && g.p[i] == '*')
        i++;
    return i == g.n;
}

/* The name that DOS-era programs see of a longer one: GITMOD~1 for .gitmodules. */
static bool short_name_fits(struct glob g, const char *name)
{
    const char *tilde = g.n && *g.p == '.' ? strchr(name, '~') : NULL;
    size_t n = tilde ? (size_t)(tilde - name) : 0, literal = 0;

    if (n == 0 || n > 6 || strspn(tilde + 1, "0123456789") == 0)
        return false;
    g.p++;
    g.n--;
    while (literal < g.n && !strchr("*?.", g.p[literal]))
        literal++;
    return literal >= 3 && n <= literal && strncmp(name, g.p, n) == 0 && (n == 6 || n == literal);
}

static struct glob next_name(const char **p, const char *end)
{
    struct glob g = { *p, 0 };
    while (*p < end && **p != '/')
        (*p)++;
    g.n = (size_t)(*p - g.p);
    *p += *p < end;
    return g;
}

/* `parts`: the folded components of a path. A pattern "a/b" fits where the two stand side by side anywhere;
 * a link's last name also fits the first names of a pattern, since what it leads to has the rest. */
static bool pattern_fits(const char *pattern, size_t len, const struct strv *parts, bool link)
{
    for (size_t i = 0; i < parts->n; i++) {
        const char *p = pattern, *end = pattern + len;
        if (*p != *parts->v[i] &&
            !strchr("*?.", *p)) /* most don't: every path meets all patterns */
            continue;
        bool fits = true;
        size_t k = i;
        for (; p < end && k < parts->n && fits; k++) {
            struct glob g = next_name(&p, end);
            fits = glob_fits(g, parts->v[k]) || short_name_fits(g, parts->v[k]);
        }
        if (fits && (p == end || link))
            return true;
    }
    return false;
}

bool risk_path_fits(const struct risk_rule *rule, const struct strv *parts, bool link)
{
    for (const char *p = rule->patterns; p && *p;) {
        size_t n = (size_t)(strchrnul(p, ' ') - p);
        if (n && pattern_fits(p, n, parts, link))
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

size_t risk_for_path(const char *path, const struct risk_rule **ret, size_t max)
{
    AUTOSTRV struct strv parts = { 0 };
    size_t n = 0;

    risk_fold(path, &parts);
    for (size_t i = 0; i < risk_n_rules && n < max; i++)
        if (risk_path_fits(&risk_rules[i], &parts, false))
            ret[n++] = &risk_rules[i];
    return n;
}
