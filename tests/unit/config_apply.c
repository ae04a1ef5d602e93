/* What is configured becomes options; a key is set in a file without touching anything else of it. */
#include "tests/unit/check.h"

#include <fcntl.h>

#include "base/fs.h"
#include "runtime/config/config.h"

static int take(void *ctx, const char *option, const char *value, const char *from, struct err **e)
{
    if (strcmp(option, "startup-timeout") == 0)
        return -1;
    if (str_eq(value, "bad.example"))
        return err_new(e, ERR_INVALID, "%s: no", from);
    strv_addf(ctx, "%s=%s", option, value ? value : "");
    return 1;
}

static const struct {
    const char *user, *flags, *want, *error;
} applied[] = {
    { "{}", "", "", NULL },
    { "{'sandbox':{'resources':{'memory':'1G','cpus':1.5},'keep_alive':true}}", "",
      "memory=1G,cpus=1.5", NULL },
    { "{'sandbox':{'resources':{'memory':'1G','cpus':1.5}}}", "memory=2G", "cpus=1.5", NULL },
    { "{'sandbox':{'resources':{'memory':'2048M','cpus':2,'pids':256,'disk':'10G'}}}", "",
      "disk=10G", NULL },
    { "{'sandbox':{'mounts':{'workspace_writable':false,'hide':['a','b']},'keep_alive':false}}",
      "hide=b,hide=c", "read-only=,hide=a,no-keep-alive=", NULL },
    { "{'sandbox':{'mounts':{'persist_caches':false}}}", "", "caches=off", NULL },
    { "{'sandbox':{'mounts':{'persist_caches':false},'locked':['mounts']}}", "caches=on", "",
      "--caches: sandbox.mounts.persist_caches is locked" },
    { "{'sandbox':{'env':{'A':'1','B':'2'}}}", "env=A=5", "env=B=2", NULL },
    { "{'sandbox':{'mounts':{'extra':['~/x:/x:ro']}}}", "", "volume=/home/someone/x:/x:ro", NULL },
    { "{'sandbox':{'network':{'policy':'none','deny':['a.example'],'rate':'1M'}}}", "",
      "network=none", NULL },
    { "{'sandbox':{'network':{'deny':['a.example']}}}", "network=none", "", NULL },
    { "{'sandbox':{'mounts':{'workspace_path':'/workspace'}}}", "", "", NULL },
    { "{'sandbox':{'runtime':'crun','enabled':false}}", "", "", NULL },
    { "{'sandbox':{'runtime':'docker'}}", "", "", "sandbox runtime 'docker' is not available" },
    { "{'sandbox':{'runtime':'/usr/bin/x'}}", "", "", "is not available" },
    { "{'sandbox':{'image':'wonopcode/sandbox:latest'}}", "", "", "images can't be built yet" },
    { "{'sandbox':{'image':'wonopcode/sandbox:latest'}}", "image=host", "", NULL },
    { "{'sandbox':{'network':{'allow':['a.example','bad.example']}}}", "", "",
      "config.json:1:32: sandbox.network.allow: no" },
    { "{'sandbox':{'startup_timeout':5}}", "", "", "sandbox.startup_timeout: '5' can't be had" },
    { "{'sandbox':{'network':'limited','locked':['network']}}", "network=none", "", NULL },
    { "{'sandbox':{'network':'limited','locked':['network']}}", "network=full", "",
      "--network: sandbox.network.policy is locked by" },
    { "{'sandbox':{'locked':['network']}}", "publish=80:80", "", "network.publish is locked" },
    { "{'sandbox':{'locked':['resources.memory']}}", "memory=1.5G", "", NULL },
    { "{'sandbox':{'locked':['resources.memory']}}", "memory=1G,memory=3G", "", "is locked by" },
    { "{'sandbox':{'locked':['mounts.hide']}}", "hide=x", "", NULL },
    { "{'sandbox':{'locked':['image']}}", "image=x", "", "sandbox.image is locked by" },
    { "{'sandbox':{'env':{'A':'1'},'locked':['env']}}", "env=A=1", "", NULL },
    { "{'sandbox':{'env':{'A':'1'},'locked':['env']}}", "env-file=/f", "",
      "--env-file: sandbox.env is locked by" },
    { "{'sandbox':{'locked':['image']}}", "env-file=/f", "", NULL },
};

static void options(void)
{
    setenv("HOME", "/home/someone", 1);
    for (size_t i = 0; i < ARRAY_LEN(applied); i++) {
        struct config_from from = { .system = "config.json" };
        CLEANUP(config_free_p) struct config *c = NULL;
        AUTOSTRV struct strv got = { 0 }, flags = { 0 };
        AUTOSTR struct str all = STR_INIT;
        AUTOFREE char *copy = str_dup(applied[i].flags), *json = str_dup(applied[i].user);
        struct err *e = NULL;

        for (char *q = json; *q; q++)
            *q = *q == '\'' ? '"' : *q;
        for (char *save = NULL, *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save))
            strv_add(&flags, w);
        CHECK(fs_write_atomic(AT_FDCWD, "config.json", json, strlen(json), 0644, NULL) == 0,
              "file");
        CHECK(config_load(&from, &c, NULL) == 0 && !c->mistakes.n, "%s", applied[i].user);
        int rc = config_apply(c, &flags, take, &got, &e);
        AUTOFREE char *why = e ? err_text(e) : str_dup("");
        err_free(e);
        for (size_t k = 0; k < got.n; k++)
            str_addf(&all, "%s%s", k ? "," : "", got.v[k]);
        CHECK((rc < 0) == (applied[i].error != NULL), "%s: %s", applied[i].user, why);
        if (applied[i].error)
            CHECK(strstr(why, applied[i].error), "%s: %s", applied[i].user, why);
        else
            CHECK_STR(all.p ? all.p : "", applied[i].want);
    }
}

/* Of a sandbox's record: what to do depends on whether another value can be given. */
static const struct {
    const char *user, *flag, *want; /* the message's end; NULL: it may stay */
} recorded[] = {
    { "{'sandbox':{'network':'none','locked':['network']}}", "network=full",
      "'s' has this flag from earlier; petri restart --network VALUE s gives it another, or petri "
      "rm s" },
    { "{'sandbox':{'network':'full','locked':['network']}}", "network=none", NULL },
    { "{'sandbox':{'locked':['keep_alive']}}", "no-keep-alive=", "earlier; petri rm s" },
    { "{'sandbox':{'locked':['mounts']}}", "read-only=", NULL },
    { "{'sandbox':{'locked':['mounts']}}", "volume=/a:/a", "earlier; petri rm s" },
    { "{'sandbox':{'mounts':{'extra':['/b:/b']},'locked':['mounts']}}", "volume=/a:/a",
      "earlier; petri restart --volume VALUE s gives it another, or petri rm s" },
    { "{'sandbox':{'env':{'A':'1'},'locked':['env']}}", "env-file=/f", "earlier; petri rm s" },
};

static void records(void)
{
    for (size_t i = 0; i < ARRAY_LEN(recorded); i++) {
        struct config_from from = { .system = "config.json" };
        CLEANUP(config_free_p) struct config *c = NULL;
        AUTOSTRV struct strv flags = { 0 };
        AUTOFREE char *json = str_dup(recorded[i].user);
        struct err *e = NULL;

        for (char *q = json; *q; q++)
            *q = *q == '\'' ? '"' : *q;
        strv_add(&flags, recorded[i].flag);
        CHECK(fs_write_atomic(AT_FDCWD, "config.json", json, strlen(json), 0644, NULL) == 0,
              "file");
        CHECK(config_load(&from, &c, NULL) == 0 && !c->mistakes.n, "%s", recorded[i].user);
        int rc = config_check_flags(c, &flags, "s", &e);
        AUTOFREE char *why = e ? err_text(e) : str_dup("");
        err_free(e);
        CHECK((rc < 0) == (recorded[i].want != NULL), "%s: %s", recorded[i].flag, why);
        CHECK(!recorded[i].want || str_ends(why, recorded[i].want), "%s", why);
    }
}

static const struct {
    const char *in, *key, *value, *want; /* NULL: refused */
} edits[] = {
    { "{\n  // mine\n  \"sandbox\": { \"image\": \"a\" /* why */ },\n}\n", "image", "\"b\"",
      "{\n  // mine\n  \"sandbox\": { \"image\": \"b\" /* why */ },\n}\n" },
    { "{}", "image", "\"b\"", "{\n  \"sandbox\": { \"image\": \"b\" }\n}" },
    { "{ // x\n}\n", "resources.memory", "\"1G\"",
      "{ // x\n  \"sandbox\": { \"resources\": { \"memory\": \"1G\" } }\n}\n" },
    { "{\n\t\"sandbox\": {\n\t\t\"image\": \"a\" // last\n\t}\n}\n", "resources.cpus", "3",
      "{\n\t\"sandbox\": {\n\t\t\"image\": \"a\", // last\n\t\t\"resources\": { \"cpus\": 3 "
      "}\n\t}\n}\n" },
    { "{\n  \"sandbox\": {\n    \"image\": \"a\", // one, two\n  },\n}\n", "keep_alive", "false",
      "{\n  \"sandbox\": {\n    \"image\": \"a\", // one, two\n    \"keep_alive\": false,\n  "
      "},\n}\n" },
    { "{\"sandbox\":{\"image\":\"a\"}}", "keep_alive", "false",
      "{\"sandbox\":{\"image\":\"a\", \"keep_alive\": false}}" },
    { "{\"sandbox\":{\"network\":\"none\"}}", "network", "\"full\"",
      "{\"sandbox\":{\"network\":\"full\"}}" },
    { "{\"sandbox\":{\"network\":\"none\"}}", "network.deny", "[\"x\"]",
      "{\"sandbox\":{\"network\":{ \"policy\": \"none\", \"deny\": [\"x\"] }}}" },
    { "{\"sandbox\":{\"network\":{\"allowedDomains\":[]}}}", "network.allow", "[\"x\"]",
      "{\"sandbox\":{\"network\":{\"allowedDomains\":[\"x\"]}}}" },
    { "{\"sandbox\":{\"limits\":{\"total\":{\"disk\":\"1G\"}}}}", "limits.total.memory", "\"1G\"",
      "{\"sandbox\":{\"limits\":{\"total\":{\"disk\":\"1G\", \"memory\": \"1G\"}}}}" },
    { "{ \"sandbox\": { /* keep me */ } }", "resources.pids", "99",
      "{ \"sandbox\": { /* keep me */\n  \"resources\": { \"pids\": 99 }\n} }" },
    { "{ \"sandbox\": { // one\n /* two */ } }", "image", "\"b\"",
      "{ \"sandbox\": { // one\n /* two */\n   \"image\": \"b\"\n } }" },
    { "{\r\n  \"sandbox\": {\r\n  }\r\n}\r\n", "image", "\"b\"",
      "{\r\n  \"sandbox\": {\r\n    \"image\": \"b\"\r\n  }\r\n}\r\n" },
    { "{\"sandbox\":{\"bypass_tools\":[ /* none, \"yet\" */ ]}}", "bypass_tools", "[\"x\"]",
      "{\"sandbox\":{\"bypass_tools\":[ /* none, \"yet\" */ \"x\"]}}" },
    { "{\"sandbox\":{\n  \"bypass_tools\": [\"//\", // why\n  ]\n}}", "bypass_tools", "[]",
      "{\"sandbox\":{\n  \"bypass_tools\": [ // why\n    ]\n}}" },
    { "{\"sandbox\":{\"image\":[/* a */]}}", "image", "\"b\"",
      "{\"sandbox\":{\"image\":/* a */ \"b\"}}" },
    { "{\"sandbox\":{\"resources\":5}}", "resources.memory", "\"1G\"", NULL },
    { "[]", "image", "\"x\"", NULL },
    { "{", "image", "\"x\"", NULL },
};

static void editing(void)
{
    for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
        AUTOSTR struct str out = STR_INIT;
        size_t key = (size_t)key_find(edits[i].key);
        int rc = config_edit(edits[i].in, strlen(edits[i].in), key, edits[i].value, &out, NULL);
        CHECK((rc == 0) == (edits[i].want != NULL), "%s", edits[i].in);
        if (rc == 0)
            CHECK_STR(out.p, edits[i].want);
    }
}

static const struct {
    const char *in, *key, *want; /* NULL: it is not there */
} unsets[] = {
    { "{\n  // mine\n  \"sandbox\": {\n    \"image\": \"a\",\n    \"runtime\": \"crun\"\n  }\n}\n",
      "image", "{\n  // mine\n  \"sandbox\": {\n    \"runtime\": \"crun\"\n  }\n}\n" },
    { "{\n  \"sandbox\": {\n    \"image\": \"a\",\n    \"runtime\": \"crun\"\n  }\n}\n", "runtime",
      "{\n  \"sandbox\": {\n    \"image\": \"a\"\n  }\n}\n" },
    { "{\n  \"sandbox\": {\n    \"image\": \"a\", // one, two\n    \"runtime\": \"crun\", /* x "
      "*/\n  },\n}\n",
      "runtime", "{\n  \"sandbox\": {\n    \"image\": \"a\", // one, two\n    /* x */\n  },\n}\n" },
    { "{\"sandbox\":{\"image\":\"a\", \"runtime\":\"crun\", \"keep_alive\":true}}", "runtime",
      "{\"sandbox\":{\"image\":\"a\", \"keep_alive\":true}}" },
    { "{\"sandbox\":{\"image\":\"a\" /* , */ , \"runtime\":\"crun\"}}", "runtime",
      "{\"sandbox\":{\"image\":\"a\" /* , */ }}" },
    { "{\"sandbox\":{\"image\":\"a\"}}", "image", "{\"sandbox\":{}}" },
    { "{\n  \"sandbox\": {\n    \"limits\": { \"total\": { \"disk\": \"1G\" } },\n    \"image\": "
      "\"a\"\n  }\n}\n",
      "limits.total.disk", "{\n  \"sandbox\": {\n    \"image\": \"a\"\n  }\n}\n" },
    { "{\"sandbox\":{\"resources\":{\"memory\":\"1G\" /* why */}}}", "resources.memory",
      "{\"sandbox\":{\"resources\":{ /* why */}}}" },
    { "{\"sandbox\":{\"network\":\"none\"}}", "network", "{\"sandbox\":{}}" },
    { "{\"sandbox\":{\"network\":{\"policy\":\"none\",\"allowedDomains\":[\"x\"]}}}",
      "network.allow", "{\"sandbox\":{\"network\":{\"policy\":\"none\"}}}" },
    { "{\"sandbox\":{\"network\":\"none\"}}", "network.allow", NULL },
    { "{\"sandbox\":{}}", "image", NULL },
    { "{}", "image", NULL },
    { "[]", "image", NULL },
};

static void unsetting(void)
{
    for (size_t i = 0; i < ARRAY_LEN(unsets); i++) {
        AUTOSTR struct str out = STR_INIT;
        size_t key = (size_t)key_find(unsets[i].key), len = strlen(unsets[i].in);
        bool found = false;
        CHECK(config_unset(unsets[i].in, len, key, &out, &found, NULL) == 0, "%s", unsets[i].in);
        CHECK(found == (unsets[i].want != NULL), "%s", unsets[i].in);
        CHECK_STR(out.p, unsets[i].want ? unsets[i].want : unsets[i].in);
    }
}

/* The table itself: names once, defaults and aliases right, groups together. */
static void table(void)
{
    for (size_t i = 0; i < n_config_keys; i++) {
        const struct config_key *k = &config_keys[i];
        AUTOSTRV struct strv words = { 0 };
        AUTOFREE char *variable = key_variable(k);

        CHECK(key_find(k->name) == (int)i, "%s stands once", k->name);
        key_default(k, &words);
        for (size_t w = 0; w < words.n; w++) {
            AUTOFREE char *wrong = key_check(k, words.v[w]);
            CHECK(!wrong, "default of %s: %s", k->name, wrong);
        }
        CHECK(key_compare(k, &words, &words) == EQUAL, "%s equals itself", k->name);
        CHECK(str_starts(variable, "PETRI_") && !strpbrk(variable, ".abcdef"), "%s", variable);
        CHECK(k->help && !str_ends(k->help, "."), "%s", k->name);
    }
    static const char *const profiles[] = { "untrusted", "user", "trusted" };
    for (size_t i = 0; i < ARRAY_LEN(profiles); i++)
        for (const char *const *v = config_profile(profiles[i]); *v; v++) {
            AUTOFREE char *name = str_printf("%.*s", (int)strcspn(*v, "="), *v);
            int key = key_find(name);
            AUTOFREE char *wrong =
                key < 0 ? str_dup("no key") : key_check(&config_keys[key], strchr(*v, '=') + 1);
            CHECK(!wrong, "%s: %s: %s", profiles[i], *v, wrong);
        }
}

int main(void)
{
    check_scratch();
    table();
    options();
    records();
    editing();
    unsetting();
    check_scratch_end();
    return check_done();
}
