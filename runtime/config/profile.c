/* runtime/config/profile.c - ready-made sets of values, from the tightest to the loosest. */
#include <string.h>

#include "runtime/config/config.h"

static const char *const untrusted[] = {
    "mounts.workspace_writable=false",
    "mounts.workspace_mode=overlay",
    "mounts.persist_caches=false",
    "network.policy=none",
    "resources.memory=512M",
    "resources.cpus=1.0",
    "resources.pids=64",
    "resources.disk=256M",
    "resources.timeout=5m",
    "resources.output=1M",
    "promotion.auto=off",
    NULL,
};
static const char *const user[] = {
    "mounts.workspace_writable=true",
    "mounts.workspace_mode=overlay",
    "network.policy=allowlist",
    "resources.memory=2G",
    "resources.cpus=2.0",
    "resources.pids=256",
    "resources.disk=10G",
    "promotion.auto=off",
    NULL,
};
static const char *const trusted[] = {
    "mounts.workspace_writable=true",
    "mounts.workspace_mode=overlay",
    "network.policy=full",
    "resources.memory=8G",
    "resources.cpus=4.0",
    "resources.pids=1024",
    "resources.disk=20G",
    NULL,
};

const char *const *config_profile(const char *name)
{
    return strcmp(name, "untrusted") == 0 ? untrusted
           : strcmp(name, "user") == 0    ? user
           : strcmp(name, "trusted") == 0 ? trusted
                                          : NULL;
}
