/* tests/unit/change_risk.c - the table of risks: which names and texts it knows, and that docs/diff.md has it. */
#include "tests/unit/check.h"

#include <fcntl.h>

#include "base/fs.h"
#include "runtime/change/content.h"
#include "runtime/change/risk_impl.h"

static const struct {
    const char *path, *codes;
} paths[] = {
    { "src/main.c", "" },
    { "README.md", "" },
    { "docs/git.md", "" },
    { ".gitignore", "" },
    { "git/x", "" },
    { ".github", "ci" },
    { ".github/workflows/ci.yml", "ci" },
    { ".GIT/config", "git-dir" },
    { "sub/.Git", "git-dir" },
    { "git~1/config", "git-dir" },
    { "GIT~2", "git-dir" },
    { ".git ", "git-dir" },
    { ".git...", "git-dir" },
    { ".git:x/y", "git-dir" },
    { "a\\.git\\config", "git-dir" },
    { ".g\xe2\x80\x8cit/hooks/x", "git-dir" },
    { "\xef\xbb\xbf.git", "git-dir" },
    { ".g\xc4\xb1t", "git-dir" },
    { ".git\xef\xb8\x80", "git-dir" },
    { ".gitmodules", "git-modules" },
    { "GITMOD~1", "git-modules" },
    { "gi7eba~3", "git-modules" },
    { "x/.gitattributes", "git-attributes" },
    { ".husky/pre-commit", "git-hooks" },
    { ".v\xc5\xbf"
      "code/tasks.json",
      "editor" },
    { "sub/.VSCODE/settings.json", "editor" },
    { "app.code-workspace", "editor" },
    { ".envrc", "environment" },
    { ".direnv/flake-profile-x.rc", "environment" },
    { ".autoenv.zsh", "environment" },
    { ".HG/hgrc", "other-vcs" },
    { "sub/.jj/repo/config.toml", "other-vcs" },
    { "docs/hg/x", "" },
    { ".wonopcode/agent/x.md", "agent" },
    { ".irbrc", "editor-rc" },
    { "rust-toolchain.toml", "build" },
    { "mise.toml", "environment" },
    { ".mcp.json", "agent" },
    { ".claude/settings.json", "agent" },
    { "CLAUDE.md", "instructions" },
    { "sub/AGENTS.md", "instructions" },
    { ".npmrc", "package-config" },
    { ".cargo/config.toml", "package-config" },
    { ".cargo/x", "" },
    { "x/.cargo/config", "package-config" },
    { ".pre-commit-config.yaml", "pre-commit" },
    { "petri.json", "petri-config" },
    { "a/b/petri.jsonc", "petri-config" },
    { "a/Wonopcode.json", "petri-config" },
    { "petri/config.json", "petri-config" },
    { "a/b/.config/petri/Config.json", "petri-config" },
    { "wonopcode/config.jsonc", "petri-config" },
    { "a/wonopcode/config.json", "petri-config" },
    { "wonopcode/wonopcode.jsonc", "petri-config" },
    { "petri/main.c", "" },
    { "config.json", "" },
    { ".venv/bin/python", "tool-binaries" },
    { "node_modules/.bin/tsc", "tool-binaries" },
    { "node_modules/x/index.js", "" },
    { "lib/foo.pth", "tool-binaries" },
    { "Makefile", "build" },
    { "src/Makefile.in", "" },
    { "package.json", "build dependency" },
    { "requirements-dev.txt", "dependency" },
    { "setup.py", "build" },
    { ".env", "secret-file" },
    { ".env.production", "secret-file" },
    { "environment.py", "" },
    { "server.key", "secret-file" },
    { "app.min.js", "generated" },
    { "Jenkinsfile", "ci" },
    { ".nvim.lua", "editor-rc" },
    { "", "" },
    { "/", "" },
    { "\xff\xfe", "" },
};

static void check_paths(void)
{
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        const struct risk_rule *hits[16];
        AUTOSTR struct str got = STR_INIT;
        size_t n = risk_for_path(paths[i].path, hits, ARRAY_LEN(hits));
        for (size_t k = 0; k < n; k++)
            str_addf(&got, "%s%s", k ? " " : "", hits[k]->code);
        CHECK(strcmp(got.p ? got.p : "", paths[i].codes) == 0, "'%s': got '%s', want '%s'",
              paths[i].path, got.p ? got.p : "", paths[i].codes);
    }
}

/* A link may lead to what a pattern's first names are about. */
static void check_links(void)
{
    AUTOSTRV struct strv parts = { 0 };
    const struct risk_rule *rule = risk_find("tool-binaries");

    risk_fold("node_modules", &parts);
    CHECK(risk_path_fits(rule, &parts, true) && !risk_path_fits(rule, &parts, false), "link");
}

static const struct {
    const char *text, *secret;
    uint32_t invisible;
    bool skipped;
} texts[] = {
    { "int main(void)\n", NULL, 0, false },
    { "key = \"AKIAIOSFODNN7EXAMPLE\"\n", "an AWS access key", 0, false },
    { "AKIA is a prefix\n", NULL, 0, false },
    { "xAKIAIOSFODNN7EXAMPLE\n", NULL, 0, false },
    { "-----BEGIN RSA PRIVATE KEY-----\n", "a private key", 0, false },
    { "-----BEGIN CERTIFICATE-----\n", NULL, 0, false },
    { "t=ghp_0123456789abcdefghijABCDEFGHIJ012345\n", "a GitHub token", 0, false },
    { "bell\a\n", NULL, 7, false },
    { "esc\x1b[31m\n", NULL, 0x1b, false },
    { "tab\tcr\r\n\f", NULL, 0, false },
    { "\xe2\x80\xae"
      "rtl\n",
      NULL, 0x202e, false },
    { "a\xe2\x80\x8b"
      "b\n",
      NULL, 0x200b, false },
    { "a\xe2\x80\x8d"
      "b\n",
      NULL, 0x200d, false },
    { "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\n", NULL, 0, false },
    { "\xef\xbb\xbf"
      "bom at the start\n",
      NULL, 0, false },
    { "\xf3\xa0\x81\x81 tag\n", NULL, 0xe0041, false },
    { "latin caf\xe9\n", NULL, 0, false },
    { "@pytest.mark.skip\n", NULL, 0, true },
    { "exit(0)\n", NULL, 0, false },
    { "  xit('x')\n", NULL, 0, true },
    { "#[ignore]\n", NULL, 0, true },
};

static void check_texts(void)
{
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct content_found f = { 0 };
        content_scan(texts[i].text, strlen(texts[i].text), &f);
        CHECK_STR(f.secret, texts[i].secret);
        CHECK(f.invisible == texts[i].invisible, "'%s': U+%04X", texts[i].text, f.invisible);
        CHECK(f.skipped_test == texts[i].skipped, "'%s'", texts[i].text);
    }
}

/* Codes are API, classes come worst first, and the page for users has every row. */
static void check_table(void)
{
    AUTOFREE char *doc = NULL;

    CHECK(fs_read(AT_FDCWD, "docs/diff.md", 1 << 20, &doc, NULL, NULL) == 0, "docs/diff.md");
    for (size_t i = 0; i < risk_n_rules; i++) {
        const struct risk_rule *r = &risk_rules[i];
        AUTOFREE char *row =
            str_printf("| `%s` | %s | %s", r->code, risk_class_name(r->class), r->reason);
        CHECK(doc && strstr(doc, row), "docs/diff.md lacks the row: %s", row);
        CHECK(i == 0 || risk_rules[i - 1].class <= r->class, "%s stands too low", r->code);
        CHECK(risk_find(r->code) == r, "%s is there twice", r->code);
        CHECK(!r->patterns || !strpbrk(r->patterns, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
              "%s: patterns are compared with folded names", r->code);
    }
}

int main(void)
{
    check_paths();
    check_links();
    check_texts();
    check_table();
    return check_done();
}
