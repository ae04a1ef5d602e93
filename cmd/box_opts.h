/* cmd/box_opts.h - the flags that describe a sandbox, for run and start alike. */
#pragma once

/* clang-format off */
#define TOTAL_OPTS \
    { "startup-timeout", 0, "TIME", "give up when it is not there after so long (60s)", NULL }, \
    { "total-sandboxes", 0, "N", "no start where more would run then, of all projects", NULL }, \
    { "total-memory", 0, "SIZE", "no start where memory limits of all that run would be more", NULL }, \
    { "total-disk", 0, "SIZE", "no start where disk limits of all that run would be more", NULL }

#define BOX_OPTS \
    { "env", 'e', "NAME[=VALUE]", "set a variable, or pass the host's", NULL }, \
    { "env-file", 0, "FILE", "read variables from a file, one NAME=VALUE a line", "file" }, \
    { "workdir", 'w', "DIR", "start there; relative to the project", "dir" }, \
    { "user", 'u', "USER[:GROUP]", "run as this user inside (0: may install packages)", "user" }, \
    { "volume", 'v', "SRC:DST[:ro]", "show a host directory or file inside", NULL }, \
    { "memory", 'm', "SIZE", "memory limit (2G)", NULL }, \
    { "cpus", 0, "N", "cpu limit (2)", NULL }, \
    { "pids-limit", 0, "N", "process limit (256)", NULL }, \
    { "image", 0, "NAME", "the system to run on (host: this machine's own)", "image" }, \
    { "network", 0, "POLICY", "none, limited (ports 80 and 443; the default), allowlist or full", \
      "none|limited|allowlist|full" }, \
    { "allow-domain", 0, "RULE", "reach this: NAME, *.NAME, NAME:PORT, address or range; alone: nothing else", NULL }, \
    { "deny-domain", 0, "RULE", "never reach this, whatever else is allowed", NULL }, \
    { "net-port", 0, "PORT", "a port that may be reached, in the place of 80 and 443", NULL }, \
    { "net-rate", 0, "RATE", "bytes per second, both directions together, like 10M", NULL }, \
    { "net-bytes", 0, "SIZE", "bytes in all, both directions together", NULL }, \
    { "on-net-failure", 0, "WORD", "its gateway died: restart it (the default), or stop the sandbox", "restart|stop" }, \
    { "publish", 'p', "[HOST:]PORT:PORT", "a port of this machine's loopback that leads to one inside", NULL }, \
    { "workspace", 0, "DIR", "the project, where it is not the one around here", "dir" }, \
    { "workspace-path", 0, "DIR", "where the project is seen inside, beside its own path (/workspace)", NULL }, \
    { "workspace-mode", 0, "MODE", "overlay, copy or bind", "overlay|copy|bind" }, \
    { "read-only", 0, NULL, "no writes to the project's copy", NULL }, \
    { "hide", 0, "PATH", "a file, directory or pattern of the project that must not be seen", "file" }, \
    { "protect", 0, "PATH", "a file, directory or pattern of the project that can't be written", "file" }, \
    { "agent", 0, "NAME", "with what is configured for this agent", NULL }, \
    { "profile", 0, "NAME", "a ready-made set of limits: untrusted, user or trusted", "untrusted|user|trusted" }, \
    { "name", 0, "NAME", "a name for the sandbox", NULL }, \
    { "label", 0, "KEY=VALUE", "a label for the sandbox", NULL }, \
    { "caches", 0, "on|off", "caches of package managers survive between sandboxes of the project (on)", \
      "on|off" }, \
    TOTAL_OPTS
/* clang-format on */
