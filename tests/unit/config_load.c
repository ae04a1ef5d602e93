/* Files and environment merged: order, lists, agents, profiles, trust, locks, substitution, mistakes. */
#include "tests/unit/config_check.h"

/* --- what counts --------------------------------------------------------------------------------- */

static const struct row {
    const char *what, *system, *user, *project, *other; /* wonopcode.json */
    const char *agent, *profile, *environment;
    bool trusted;
    const char *want;    /* "key=value key=value" */
    const char *waiting; /* keys, in order; NULL: none */
} rows[] = {
    { .what = "nothing at all",
      .want = "enabled=false runtime=auto image=host resources.memory=2G resources.cpus=2.0 "
              "resources.pids=256 network.policy=limited mounts.workspace_writable=true "
              "mounts.persist_caches=true bypass_tools= keep_alive=true" },
    { .what = "later wins",
      .system = "{'sandbox':{'resources':{'memory':'1G','pids':99}}}",
      .user = "{'sandbox':{'resources':{'memory':'3G'}}}",
      .environment = "PETRI_RESOURCES_CPUS=0.5",
      .want = "resources.memory=3G resources.pids=99 resources.cpus=0.5" },
    { .what = "lists of protections grow, others are replaced",
      .system = "{'sandbox':{'mounts':{'hide':['a','b']},'network':{'allow':['x.example']}}}",
      .user = "{'sandbox':{'mounts':{'hide':['b','c']},'network':{'allow':['y.example']}}}",
      .project = "{'sandbox':{'mounts':{'hide':['d']}}}",
      .environment = "PETRI_MOUNTS_HIDE=e,f",
      .want = "mounts.hide=a,b,c,d,e,f network.allow=y.example" },
    { .what = "an empty list takes nothing away from a protection",
      .user = "{'sandbox':{'network':{'deny':['x.example']}}}",
      .project = "{'sandbox':{'network':{'deny':[]}}}",
      .want = "network.deny=x.example" },
    { .what = "maps merge by name",
      .user = "{'sandbox':{'env':{'A':'1','B':'2'}}}",
      .project = "{'sandbox':{'env':{'B':'3','C':'4'}}}",
      .want = "env=A=1,B=3,C=4" },
    { .what = "other spellings",
      .user = "{'sandbox':{'network':{'policy':'allowlist','allowedDomains':['a.example'],"
              "'deniedDomains':['b.example']}}}",
      .want = "network.policy=allowlist network.allow=a.example network.deny=b.example" },
    { .what = "seconds are a time too",
      .user = "{'sandbox':{'idle_timeout':90,'max_lifetime':'2h'}}",
      .want = "idle_timeout=90 max_lifetime=2h" },
    { .what = "a stranger's project tightens",
      .project =
          "{'sandbox':{'enabled':true,'network':'none','resources':{'memory':'1G','cpus':1,"
          "'pids':64,'timeout':'1m'},'mounts':{'workspace_writable':false,'hide':['.env']}}}",
      .want = "enabled=true network.policy=none resources.memory=1G resources.cpus=1 "
              "resources.pids=64 resources.timeout=1m mounts.workspace_writable=false "
              "mounts.hide=.env" },
    { .what = "a stranger's project loosens nothing",
      .project = "{'sandbox':{'enabled':false,'network':{'policy':'full','allow':['a.example'],"
                 "'publish':['80:80'],'ports':[22]},'image':'x','runtime':'/bin/x',"
                 "'resources':{'memory':'3G','cpus':2.5,'pids':257,'timeout':0,'output':'11M'},"
                 "'mounts':{'workspace_mode':'bind','extra':['/etc:/x']},'bypass_tools':['t'],"
                 "'promotion':{'auto':'on-stop'},'profile':'trusted','env':{'A':'1'}}}",
      .want = "enabled=false network.policy=limited network.allow= network.publish= "
              "network.ports=80,443 image=host runtime=auto resources.memory=2G resources.cpus=2.0 "
              "resources.pids=256 resources.output=10M mounts.workspace_mode=overlay mounts.extra= "
              "bypass_tools= promotion.auto=off profile= env=A=1",
      .waiting = "profile,enabled,network.policy,network.allow,network.publish,network.ports,image,"
                 "runtime,resources.memory,resources.cpus,resources.pids,resources.output,"
                 "mounts.workspace_mode,mounts.extra,bypass_tools,promotion.auto" },
    { .what = "names alone are an allowlist, which a stranger does not widen",
      .user = "{'sandbox':{'network':{'allow':['a.example']}}}",
      .project = "{'sandbox':{'network':{'policy':'limited','allow':[]}}}",
      .want = "network.policy=allowlist network.allow=",
      .waiting = "network.policy" },
    { .what = "an allowlist without names stays one",
      .user = "{'sandbox':{'network':{'allow':['a.example']}}}",
      .project = "{'sandbox':{'network':{'allow':[]}}}",
      .want = "network.policy=allowlist network.allow=" },
    { .what = "a profile by {env:} is one for the files after it, too",
      .user = "{'sandbox':{'profile':'{env:PETRIX_TIER}'}}",
      .project = "{'sandbox':{'network':'limited','mounts':{'workspace_writable':true},"
                 "'resources':{'timeout':'99h','memory':'1G'}}}",
      .want = "profile=untrusted network.policy=none mounts.workspace_writable=false "
              "resources.timeout=5m resources.memory=512M",
      .waiting = "network.policy,mounts.workspace_writable,resources.timeout,resources.memory" },
    { .what = "a trusted profile by {env:}",
      .project = "{'sandbox':{'profile':'{env:PETRIX_TIER}'}}",
      .trusted = true,
      .want = "profile=untrusted network.policy=none" },
    { .what = "a run's disk is half of its memory: a stranger gets no more",
      .project = "{'sandbox':{'resources':{'disk':'10G'}}}",
      .want = "resources.disk=10G",
      .waiting = "resources.disk" },
    { .what = "a smaller disk",
      .user = "{'sandbox':{'resources':{'memory':'1G'}}}",
      .project = "{'sandbox':{'resources':{'disk':'512M'}}}",
      .want = "resources.disk=512M" },
    { .what = "a second file of a stranger's does not loosen the first",
      .other = "{'sandbox':{'network':'none','mounts':{'workspace_writable':false}}}",
      .project = "{'sandbox':{'network':'limited','mounts':{'workspace_writable':true},"
                 "'resources':{'pids':9}}}",
      .want = "network.policy=none mounts.workspace_writable=false resources.pids=9",
      .waiting = "network.policy,mounts.workspace_writable" },
    { .what = "a locked profile locks what it says",
      .user = "{'sandbox':{'profile':'untrusted','locked':['profile']}}",
      .project = "{'sandbox':{'profile':'trusted','network':'full','resources':{'pids':9}}}",
      .trusted = true,
      .want = "profile=untrusted network.policy=none resources.memory=512M resources.pids=9" },
    { .what = "trusted, all of it counts",
      .project = "{'sandbox':{'enabled':false,'network':'full','resources':{'memory':'4G'}}}",
      .trusted = true,
      .want = "enabled=false network.policy=full resources.memory=4G" },
    { .what = "loose is what is looser than the user's own",
      .user = "{'sandbox':{'resources':{'memory':'8G'},'network':'full'}}",
      .project = "{'sandbox':{'resources':{'memory':'4G','pids':300},'network':'limited'}}",
      .want = "resources.memory=4G network.policy=limited resources.pids=256",
      .waiting = "resources.pids" },
    { .what = "an agent, nested",
      .user = "{'sandbox':{'enabled':true},'agent':{'code':{'sandbox':{'network':'full',"
              "'resources':{'memory':'4G'}}},'explore':{'sandbox':{'network':'none'}}}}",
      .agent = "code",
      .want = "enabled=true network.policy=full resources.memory=4G" },
    { .what = "an agent, flat",
      .user = "{'agent':{'explore':{'sandbox':{'workspace_writable':false,'memory':'1G'}}}}",
      .agent = "explore",
      .want = "mounts.workspace_writable=false resources.memory=1G" },
    { .what = "an agent without a sandbox",
      .user = "{'sandbox':{'enabled':true},'agent':{'trusted':{'sandbox':{'enabled':false}}}}",
      .agent = "trusted",
      .want = "enabled=false" },
    { .what = "agents of a stranger's file only tighten",
      .project = "{'sandbox':{'network':'none'},'agent':{'code':{'sandbox':{'network':'limited',"
                 "'resources':{'memory':'4G'}}}}}",
      .agent = "code",
      .want = "network.policy=limited resources.memory=2G",
      .waiting = "resources.memory" },
    { .what = "another agent's values do not count",
      .user = "{'agent':{'code':{'sandbox':{'network':'full'}}}}",
      .agent = "other",
      .want = "network.policy=limited" },
    { .what = "a profile lies below its own file's values and above earlier files",
      .system = "{'sandbox':{'resources':{'memory':'4G'}}}",
      .user = "{'sandbox':{'resources':{'pids':70},'profile':'untrusted'}}",
      .want = "resources.memory=512M resources.pids=70 network.policy=none "
              "mounts.workspace_writable=false" },
    { .what = "--profile lies above all files",
      .user = "{'sandbox':{'network':'full'}}",
      .profile = "untrusted",
      .want = "network.policy=none resources.memory=512M" },
    { .what = "a locked key can be tightened only",
      .system = "{'sandbox':{'network':'limited','locked':['network','image']}}",
      .project = "{'sandbox':{'network':'none','resources':{'memory':'1G'}}}",
      .want = "network.policy=none resources.memory=1G" },
    { .what = "a locked key holds against a trusted project",
      .system = "{'sandbox':{'locked':['network.policy']}}",
      .project = "{'sandbox':{'network':'full','resources':{'memory':'4G'}}}",
      .trusted = true,
      .want = "network.policy=limited resources.memory=4G" },
    { .what = "substitution",
      .user = "{'sandbox':{'env':{'A':'x{env:PETRIX_UNIT}y{env:PETRIX_UNIT}','B':'{file:b.txt}'},"
              "'resources':{'pids':'{env:PETRIX_NUMBER}'}}}",
      .want = "env=A=xhelloyhello,B=content resources.pids=77" },
    { .what = "a stranger's substitution waits",
      .project = "{'sandbox':{'env':{'A':'{env:PETRIX_UNIT}'}}}",
      .want = "env=",
      .waiting = "env" },
};

static void check_values(const struct row *r, const struct config *c)
{
    AUTOFREE char *want = str_dup(r->want);
    for (char *save = NULL, *w = strtok_r(want, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *value = strchr(w, '=');
        *value++ = '\0';
        check_value(r->what, c, w, value);
    }
}

static void what_counts(void)
{
    CLEANUP(places_free_p) struct places p = { 0 };
    struct config_from from = places_make(&p);

    put_file("user/petri/b.txt", "content\n");
    setenv("PETRIX_UNIT", "hello", 1);
    setenv("PETRIX_NUMBER", "77", 1);
    setenv("PETRIX_TIER", "untrusted", 1);
    CHECK(mkdir(p.project, 0755) == 0, "project");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *r = &rows[i];
        char *environment[] = { (char *)(r->environment ? r->environment : "X=1"), NULL };
        CLEANUP(config_free_p) struct config *c = NULL;
        struct err *e = NULL;

        place_files(r->system, r->user, r->project);
        place_file("proj/wonopcode.json", r->other);
        from.agent = r->agent;
        from.profile = r->profile;
        from.environment = environment;
        from.trust_all = r->trusted;
        CHECK(config_load(&from, &c, &e) == 0, "%s", r->what);
        if (!c)
            continue;
        AUTOFREE char *wrong = joined(&c->mistakes), *waiting = joined(&c->waiting);
        CHECK(!*wrong, "%s: %s", r->what, wrong);
        CHECK(strcmp(waiting, r->waiting ? r->waiting : "") == 0, "%s: waiting: %s", r->what,
              waiting);
        check_values(r, c);
        CHECK(c->agent_missing == str_eq(r->agent, "other"), "%s: agent", r->what);
    }
}

/* --- mistakes ------------------------------------------------------------------------------------ */

static const struct {
    const char *user, *project, *environment;
    const char *want; /* part of a mistake; all of them are one per '|' */
} bad[] = {
    { .user = "[]", .want = "config.json:1:1: an object is wanted" },
    { .user = "{\n 'sandbox': 5}", .want = "config.json:2:13: sandbox: an object is wanted" },
    { .user = "{'sandbox':{'enabled':'true'}}",
      .want = "1:23: sandbox.enabled: a string is not true or false" },
    { .user = "{'sandbox':{'enabled':null}}", .want = "sandbox.enabled: null is not" },
    { .user = "{'sandbox':{'resources':{'memory':2147483648}}}",
      .want = "1:35: sandbox.resources.memory: a number is not a size" },
    { .user = "{'sandbox':{'resources':{'memory':'2GB'}}}", .want = "'2GB' is not a size" },
    { .user = "{'sandbox':{'resources':{'memory':'1.5G'}}}", .want = "'1.5G' is not a size" },
    { .user = "{'sandbox':{'resources':{'memory':'-1'}}}", .want = "'-1' is not a size" },
    { .user = "{'sandbox':{'resources':{'memory':'abc'}}}", .want = "'abc' is not a size" },
    { .user = "{'sandbox':{'resources':{'memory':''}}}", .want = "'' is not a size" },
    { .user = "{'sandbox':{'resources':{'memory':'1M'}}}", .want = "too small: at least 4M" },
    { .user = "{'sandbox':{'resources':{'memory':'99999999999T'}}}", .want = "is not a size" },
    { .user = "{'sandbox':{'resources':{'cpus':0}}}", .want = "'0' is not a number of cpus" },
    { .user = "{'sandbox':{'resources':{'cpus':-1}}}", .want = "'-1' is not a number of cpus" },
    { .user = "{'sandbox':{'resources':{'cpus':'2'}}}", .want = "a string is not a number" },
    { .user = "{'sandbox':{'resources':{'pids':2.5}}}", .want = "'2.5' is not a whole number" },
    { .user = "{'sandbox':{'resources':{'pids':1e400}}}", .want = "1:33: not JSON" },
    { .user = "{'sandbox':{'network':'limted'}}", .want = "'limted' is not none, allowlist" },
    { .user = "{'sandbox':{'network':{'policy':'x'}}}", .want = "sandbox.network.policy: 'x'" },
    { .user = "{'sandbox':{'network':{'ports':[]}}}",
      .want = "sandbox.network.ports: an empty list" },
    { .environment = "PETRI_NETWORK_PORTS=[]", .want = "PETRI_NETWORK_PORTS: an empty list" },
    { .user = "{'sandbox':{'network':{'allow':[],'allowedDomains':['a.example']}}}",
      .want = "network.allow stands here twice" },
    { .user = "{'agent':{'code':{'sandbox':{'memory':'1G','resources':{'memory':'2G'}}}}}",
      .want = "resources.memory stands here twice" },
    { .user = "{'sandbox.enabled':false}", .want = "did you mean {\"sandbox\": {...}}?" },
    { .user = "{'sandbox':{'network':{'ports':[0]}}}", .want = "1:33: sandbox.network.ports: '0'" },
    { .user = "{'sandbox':{'network':{'publish':['x']}}}", .want = "sandbox.network.publish: 'x'" },
    { .user = "{'sandbox':{'mounts':{'hide':['../x']}}}", .want = "sandbox.mounts.hide: '../x'" },
    { .user = "{'sandbox':{'mounts':{'hide':['/etc']}}}", .want = "sandbox.mounts.hide: '/etc'" },
    { .user = "{'sandbox':{'mounts':{'extra':['x']}}}", .want = "sandbox.mounts.extra: 'x'" },
    { .user = "{'sandbox':{'env':{'A B':'1'}}}", .want = "sandbox.env: 'A B=1'" },
    { .user = "{'sandbox':{'env':{'A':1}}}", .want = "sandbox.env: a number is not" },
    { .user = "{'sandbox':{'locked':['netwrk']}}", .want = "sandbox.locked: 'netwrk'" },
    { .user = "{'sandbox':{'runtime':'dokcer'}}", .want = "sandbox.runtime: 'dokcer' is not auto" },
    { .user = "{'sandbox':{'memory':'1G'}}",
      .want = "unknown key 'sandbox.memory' (did you mean 'sandbox.resources.memory'?)" },
    { .user = "{'sandbox':{'resources.memory':'1G'}}",
      .want = "unknown key 'sandbox.resources.memory'" },
    { .user = "{'sandbox':{'limits':{'total':{'sandbox':1}}}}",
      .want = "(did you mean 'sandbox.limits.total.sandboxes'?)" },
    { .user = "{'resources':{}}", .want = "(did you mean 'sandbox.resources'?)" },
    { .user = "{'agent':{'../x':{'sandbox':{}}}}", .want = "1:11: agent '../x':" },
    { .user = "{'agent':{'code':{'sandbox':{'netwrk':'full'}}}}",
      .want =
          "unknown key 'agent.code.sandbox.netwrk' (did you mean 'agent.code.sandbox.network'?)" },
    { .user = "{'sandbox':{'enabeld':1,'resources':{'memory':'x'},'foo':{}}}",
      .want = "did you mean 'sandbox.enabled'?|'x' is not a size|unknown key 'sandbox.foo'" },
    { .user = "{'sandbox':{'env':{'A':'{env:PETRIX_NOT_SET}'}}}", .want = "is not set" },
    { .user = "{'sandbox':{'env':{'A':'{env:A-B}'}}}", .want = "not the name of a variable" },
    { .user = "{'sandbox':{'env':{'A':'{env:X'}}}", .want = "has no '}'" },
    { .user = "{'sandbox':{'env':{'A':'{file:none}'}}}", .want = "No such file" },
    { .user = "{'sandbox':{'env':{'A':'{file:/etc/shadow}'}}}", .want = "only files beside" },
    { .user = "{'sandbox':{'env':{'A':'{file:../x}'}}}", .want = "only files beside" },
    { .user = "{'sandbox':{'env':{'A':'{file:config.json}'}}}", .want = "it includes others" },
    { .user = "{'sandbox':{'env':{'A':'{file:.}'}}}", .want = "not a plain file" },
    { .user = "{'sandbox':{'resources':{'memory':'{env:PETRIX_UNIT}'}}}",
      .want = "sandbox.resources.memory: 'hello' is not a size" },
    { .project = "{'sandbox':{'env':{'A':'{file:/etc/shadow}'}}}", .want = "only files beside" },
    { .project = "{'sandbox':{'locked':['network']}}", .want = "only the user's and the system's" },
    { .project = "{'sandbox':{'image':5}}", .want = "petri.json:1:21: sandbox.image: a number" },
    { .environment = "PETRI_RESOURCES_MEMORY=2GB", .want = "PETRI_RESOURCES_MEMORY: '2GB'" },
    { .environment = "PETRI_RESOURCES_MEMROY=2G", .want = "did you mean PETRI_RESOURCES_MEMORY" },
    { .environment = "PETRI_LOCKED=image", .want = "only files can lock" },
    { .environment = "PETRI_NETWORK_ALLOW=[1", .want = "PETRI_NETWORK_ALLOW: 1:1: not JSON" },
    { .user = "{'sandbox':{'locked':['network']}}",
      .environment = "PETRI_NETWORK=full",
      .want = "environment PETRI_NETWORK: network.policy is locked by" },
};

static void mistakes(void)
{
    CLEANUP(places_free_p) struct places p = { 0 };
    struct config_from from = places_make(&p);

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char *environment[] = { (char *)(bad[i].environment ? bad[i].environment : "X=1"), NULL };
        CLEANUP(config_free_p) struct config *c = NULL;
        AUTOFREE char *want = str_dup(bad[i].want);
        size_t n = 0;

        place_files(NULL, bad[i].user, bad[i].project);
        from.environment = environment;
        CHECK(config_load(&from, &c, NULL) == 0, "load");
        AUTOFREE char *got = joined(&c->mistakes);
        for (char *save = NULL, *w = strtok_r(want, "|", &save); w; w = strtok_r(NULL, "|", &save))
            CHECK(n++ < c->mistakes.n && strstr(c->mistakes.v[n - 1], w), "%s: got %s", w, got);
        CHECK(c->mistakes.n == n, "%s: %zu mistakes: %s", bad[i].want, c->mistakes.n, got);
    }
}

int main(void)
{
    check_scratch();
    umask(022);
    what_counts();
    mistakes();
    check_scratch_end();
    return check_done();
}
