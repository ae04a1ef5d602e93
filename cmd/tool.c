/* cmd/tool.c - `petri tool`: a tool of an agent, in the sandbox that is configured for it.
 * The host is used only where trusted configuration says so, and every such run says so too.
 */
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "cmd/config.h"

extern char **environ;

/* Why the tool may run on the host; NULL: it may not. Values of files that nobody trusts have not come so far. */
static char *host_reason(const struct config *c, const char *tool)
{
    size_t enabled = (size_t)key_find("enabled"), runtime = (size_t)key_find("runtime");
    size_t bypass = (size_t)key_find("bypass_tools");
    const struct setting *b = &c->set[bypass];

    if (c->set[enabled].set && !config_true(c, "enabled"))
        return str_printf("enabled is false (%s)", config_origin(c, enabled));
    if (c->set[runtime].set && str_eq(c->set[runtime].words.v[0], "none"))
        return str_printf("the runtime is none (%s)", config_origin(c, runtime));
    for (size_t i = 0; b->set && i < b->words.n; i++)
        if (strcmp(b->words.v[i], tool) == 0)
            return str_printf("it is one of bypass_tools (%s)", b->from.v[i]);
    return NULL;
}

/* Where the project is outside and inside. It has its own path inside too, so most paths are right as they are. */
struct places {
    const char *project;
    char *workspace;
};

/* An absolute path of the project as it is called on the other side; NULL: it needs no other name. On the host
 * /workspace is the project; inside, a path of the host's that leads there by a link is the project's own. */
static char *other_name(const struct places *p, const char *path, bool to_host)
{
    AUTOFREE char *real = NULL;

    if (!p->project || path[0] != '/' || strstr(path, "/../") || path_below(path, p->project))
        return NULL;
    if (path_below(path, p->workspace))
        return to_host && !fs_exists(path)
                   ? str_printf("%s%s", p->project, path + strlen(p->workspace))
                   : NULL;
    if (to_host || !(real = fs_realpath_part(path)) || !path_below(real, p->project))
        return NULL;
    return TAKE_PTR(real);
}

/* A word that is a path, or --flag=PATH. Scripts and what a command prints are nobody's to rewrite. */
static char *mapped(const struct places *p, const char *word, bool to_host)
{
    const char *path = word[0] == '-' && strchr(word, '=') ? strchr(word, '=') + 1 : word;
    AUTOFREE char *other = other_name(p, path, to_host);
    return other ? str_printf("%.*s%s", (int)(path - word), word, other) : str_dup(word);
}

static int on_host(const char *tool, const char *why, const struct places *p, char **argv)
{
    for (char **v = argv; *v; v++)
        *v = mapped(p, *v, true);
    cmd_note("tool '%s' runs on the host, without a sandbox: %s", tool, why);
    execvp(argv[0], argv);
    return cmd_fail(errno == ENOENT ? 127 : 126, "'%s': %s", argv[0], strerror(errno));
}

/* An agent with values of its own has a sandbox of its own: limits and network belong to a sandbox, not to a
 * command. Its name follows from agent and project. NULL: the project's own. */
static char *sandbox_of(const struct config *c, const char *agent, const char *project)
{
    if (!agent || c->agent_missing || !project)
        return NULL;
    return str_printf("%.40s-%08llx", agent,
                      (unsigned long long)str_hash(STR_HASH, project, strlen(project)) >> 32);
}

static int start(const char *agent, const char *sandbox)
{
    const char *argv[8] = { "petri", "start", "-q" };
    size_t n = 3;
    pid_t pid;
    int status;

    if (agent) {
        argv[n++] = "--agent";
        argv[n++] = agent;
    }
    if (sandbox) { /* whoever names no agent must not get this one's */
        argv[n++] = "--aside";
        argv[n++] = sandbox;
    }
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, (char *const *)argv, environ) != 0 ||
        RETRY(waitpid(pid, &status, 0)) < 0)
        return cmd_fail(125, "start the sandbox: %s", strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 125;
}

static int in_sandbox(const struct config *c, const char *sandbox, const struct places *p,
                      char **argv)
{
    const struct setting *output = &c->set[key_find("resources.output")];
    AUTOSTRV struct strv words = { 0 };
    const char *project = p->project;
    char cwd[PATH_MAX];

    strv_add(&words, "petri");
    strv_add(&words, "exec");
    strv_add(&words, "-q");
    /* the project is inside at its own path too: what the tool is told and what it tells are the host's paths */
    if (project && getcwd(cwd, sizeof cwd) && path_below(cwd, project)) {
        strv_add(&words, "-w");
        strv_add(&words, cwd);
    }
    if (output->set) {
        strv_add(&words, "--max-output");
        strv_add(&words, output->words.v[0]);
    }
    if (sandbox)
        strv_add(&words, sandbox);
    strv_add(&words, "--");
    for (; *argv; argv++)
        strv_take(&words, mapped(p, *argv, false));
    execv("/proc/self/exe", words.v);
    return cmd_fail(125, "start petri exec: %s", strerror(errno));
}

static int tool_run(const struct cmd *c, int argc, char **argv)
{
    struct configured how = { .status = 125 };
    CLEANUP(config_free_p) struct config *conf = NULL;
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    AUTOFREE char *project = NULL, *why = NULL, *sandbox = NULL;
    AUTOSTRV struct strv workspace = { 0 };
    const char *value = NULL, *tool, *agent;
    const struct opt *o;
    struct err *e = NULL;
    bool bad = false;
    int rc;

    while ((o = cmd_next_opt(c, argc, argv, &value, &bad)))
        if (strcmp(o->name, "agent") == 0)
            how.agent = value;
    if (bad)
        return c->usage_exit;
    if (optind >= argc)
        return cmd_usage(c, "the name of a tool is wanted; like: petri tool bash -- make test");
    tool = argv[optind++];
    if (optind < argc && strcmp(argv[optind], "--") == 0)
        optind++;
    if (optind >= argc)
        return cmd_usage(c, "no command given; like: petri tool bash -- make test");
    if (paths_find(&paths, &e) < 0)
        return cmd_fail_err(125, e, false);
    if (!(conf = configured_load(&how, &paths, false, &project)))
        return 125;
    configured_notes(conf);
    config_value(conf, (size_t)key_find("mounts.workspace_path"), &workspace);
    struct places places = { project, workspace.v[0] };
    if ((why = host_reason(conf, tool)))
        return on_host(tool, why, &places, argv + optind);
    agent = how.agent ? how.agent : getenv("PETRI_AGENT");
    sandbox = sandbox_of(conf, agent && *agent ? agent : NULL, project);
    if ((rc = start(how.agent, sandbox)) != 0)
        return rc;
    return in_sandbox(conf, sandbox, &places, argv + optind);
}

static const struct opt tool_opts[] = {
    { "agent", 0, "NAME", "with the configuration of this agent (PETRI_AGENT)", NULL },
};

extern const struct cmd cmd_tool;
const struct cmd cmd_tool = {
    .name = "tool",
    .summary = "run an agent's tool where the configuration wants it",
    .usage = "[--agent NAME] TOOL -- CMD...",
    .about =
        "In the project's own sandbox, which is started on first use; an agent with values of "
        "its own in the configuration has a sandbox of its own. On the host only where trusted "
        "configuration says so (enabled: false, runtime: none, or the tool in bypass_tools), "
        "and then a line on stderr says it. Paths of the project are the host's, inside too; on "
        "the "
        "host a word that is a path below /workspace is the project's.\n"
        "Exit status: the command's own; 125 petri failed, 126 not executable, 127 not found.",
    .examples = "petri tool bash -- make test\tfor the tool called bash\n"
                "petri tool --agent explore grep -- grep -r main .\tas the agent explore",
    .opts = tool_opts,
    .n_opts = ARRAY_LEN(tool_opts),
    .complete = "command",
    .usage_exit = 125,
    .run = tool_run,
};
