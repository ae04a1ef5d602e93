/* cmd/box_opts.h - the flags that describe a sandbox, for run and start alike. */
#pragma once

/* clang-format off */
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
    { "network", 0, "POLICY", "network policy; only 'none' so far", "none" }, \
    { "workspace", 0, "DIR", "the project, where it is not the one around here", "dir" }, \
    { "workspace-mode", 0, "MODE", "overlay, copy or bind", "overlay|copy|bind" }, \
    { "read-only", 0, NULL, "no writes to the project's copy", NULL }, \
    { "hide", 0, "PATH", "a file, directory or pattern of the project that must not be seen", "file" }, \
    { "name", 0, "NAME", "a name for the sandbox", NULL }, \
    { "label", 0, "KEY=VALUE", "a label for the sandbox", NULL }
/* clang-format on */
