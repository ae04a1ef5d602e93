/* Manifests, indexes and image configs: the good, and each kind of bad. */
#include "tests/unit/check.h"

#include "base/str.h"
#include "oci/image_config.h"
#include "oci/manifest.h"

#define ID "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ROOTFS "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"" ID "\"]}"

static const struct {
    const char *config, *want;
} workdirs[] = {
    { "{}", "/" },
    { "null", "/" },
    { "{\"WorkingDir\":\"\"}", "/" },
    { "{\"WorkingDir\":\"/\"}", "/" },
    { "{\"WorkingDir\":\"//srv/./app//\"}", "/srv/app" },
    { "{\"WorkingDir\":\"/procs\"}", "/procs" },
    { "{\"WorkingDir\":\"srv\"}", NULL },
    { "{\"WorkingDir\":\"/a/../b\"}", NULL },
    { "{\"WorkingDir\":\"/..\"}", NULL },
    { "{\"WorkingDir\":\"/proc\"}", NULL },
    { "{\"WorkingDir\":\"/./proc/self/fd/3\"}", NULL },
    { "{\"WorkingDir\":\"/sys/x\"}", NULL },
    { "{\"WorkingDir\":\"/dev/fd\"}", NULL },
    { "{\"WorkingDir\":\"/a\\nb\"}", NULL },
};

static int parse(const char *config, struct image_config *c, struct err **e)
{
    AUTOFREE char *text = str_printf("{\"os\":\"linux\"," ROOTFS ",\"config\":%s}", config);
    return image_config_parse(text, strlen(text), c, e);
}

static void working_directories(void)
{
    for (size_t i = 0; i < ARRAY_LEN(workdirs); i++) {
        CLEANUP(image_config_free_p) struct image_config c = { 0 };
        CLEANUP(err_free_p) struct err *e = NULL;
        int rc = parse(workdirs[i].config, &c, &e);
        CHECK((rc < 0) == !workdirs[i].want && (rc < 0) == (e != NULL), "%s", workdirs[i].config);
        CHECK_STR(c.workdir, workdirs[i].want);
    }
}

static const struct {
    const char *config;
    bool ok;
} configs[] = {
    { "{\"User\":\"\"}", true },
    { "{\"User\":\"0\"}", true },
    { "{\"User\":\"www-data:www-data\"}", true },
    { "{\"User\":\"1000:users\"}", true },
    { "{\"User\":\"2147483647\"}", true },
    { "{\"User\":\"2147483648\"}", false },
    { "{\"User\":\"-1\"}", false },
    { "{\"User\":\":\"}", false },
    { "{\"User\":\"a:\"}", false },
    { "{\"User\":\"a:b:c\"}", false },
    { "{\"User\":\"a b\"}", false },
    { "{\"User\":\"../a\"}", false },
    { "{\"User\":\"a\\u0000\"}", false },
    { "{\"Env\":[\"A=\",\"B=c=d\",\"P=x\\ty\"]}", true },
    { "{\"Env\":null}", true },
    { "{\"Env\":[\"A\"]}", false },
    { "{\"Env\":[\"=a\"]}", false },
    { "{\"Env\":[\"A B=c\"]}", false },
    { "{\"Env\":[\"A=\\u0007\"]}", false },
    { "{\"Env\":[\"A=\\u007f\"]}", false },
    { "{\"Env\":[1]}", false },
    { "{\"Env\":\"A=b\"}", false },
    { "{\"Env\":{}}", false },
    { "{\"Cmd\":[\"sh\",\"-c\",\"a\\nb\"]}", true },
    { "{\"Cmd\":[]}", true },
    { "{\"Cmd\":[null]}", false },
    { "{\"Entrypoint\":\"sh\"}", false },
    { "{\"Entrypoint\":[\"\\u001b\"]}", false },
    { "{\"Labels\":{\"a\":\"b\"}}", true },
};

static void words(void)
{
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        CLEANUP(image_config_free_p) struct image_config c = { 0 };
        CHECK((parse(configs[i].config, &c, NULL) == 0) == configs[i].ok, "%s", configs[i].config);
    }
}

static const struct {
    const char *text;
    bool ok;
} whole[] = {
    { "{" ROOTFS "}", true },
    { "{\"architecture\":\"amd64\"," ROOTFS "}", true },
    { "{\"os\":\"windows\"," ROOTFS "}", false },
    { "{\"architecture\":\"\\u001b[2J\"," ROOTFS "}", false },
    { "{}", false },
    { "[]", false },
    { "", false },
    { "{\"rootfs\":{\"diff_ids\":[]}}", false },
    { "{\"rootfs\":{\"diff_ids\":[1]}}", false },
    { "{\"rootfs\":{\"diff_ids\":[\"sha256:../../x\"]}}", false },
};

static void whole_configs(void)
{
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
        CLEANUP(image_config_free_p) struct image_config c = { 0 };
        int rc = image_config_parse(whole[i].text, strlen(whole[i].text), &c, NULL);
        CHECK((rc == 0) == whole[i].ok, "%s", whole[i].text);
    }
}

#define DESC "{\"mediaType\":\"x\",\"digest\":\"" ID "\",\"size\":1}"

static const struct {
    const char *text;
    bool ok;
} manifests[] = {
    { "{\"schemaVersion\":2,\"config\":" DESC ",\"layers\":[" DESC "," DESC "]}", true },
    { "{\"schemaVersion\":2,\"config\":" DESC ",\"layers\":[]}", true },
    { "{\"schemaVersion\":1,\"config\":" DESC ",\"layers\":[]}", false },
    { "{\"schemaVersion\":2,\"layers\":[]}", false },
    { "{\"schemaVersion\":2,\"config\":" DESC "}", false },
    { "{\"schemaVersion\":2,\"config\":" DESC ",\"layers\":{}}", false },
    { "{\"schemaVersion\":2,\"config\":" DESC ",\"layers\":[1]}", false },
    { "{\"schemaVersion\":2,\"config\":" DESC ",\"layers\":[{\"digest\":\"" ID "\",\"size\":1}]}",
      false },
    { "{\"schemaVersion\":2,\"config\":" DESC ",\"layers\":[{\"mediaType\":\"x\",\"digest\":\"" ID
      "\",\"size\":-1}]}",
      false },
    { "{\"schemaVersion\":2,\"config\":" DESC ",\"layers\":[{\"mediaType\":\"x\",\"digest\":\"" ID
      "\",\"size\":18446744073709551615}]}",
      false },
};

static void manifest_table(void)
{
    for (size_t i = 0; i < ARRAY_LEN(manifests); i++) {
        CLEANUP(manifest_free_p) struct manifest m = { 0 };
        int rc = manifest_parse(manifests[i].text, strlen(manifests[i].text), &m, NULL);
        CHECK((rc == 0) == manifests[i].ok, "%s", manifests[i].text);
    }
}

/* What another tool wrote into the index survives being written again. */
static void rewriting(void)
{
    static const char text[] = "{\"schemaVersion\":2,\"annotations\":{\"a\":\"b \\\" \\n\"},"
                               "\"manifests\":[],\"x\":[1,null,true,{\"y\":[]}]}";
    CLEANUP(index_free_p) struct index i = { 0 };
    AUTOJSONW struct jsonw w = { 0 };

    CHECK(index_parse(text, sizeof text - 1, &i, NULL) == 0, "parse");
    jw_json(&w, NULL, i.json);
    CHECK_STR(w.out.p, text);
}

int main(void)
{
    working_directories();
    words();
    whole_configs();
    manifest_table();
    rewriting();
    return check_done();
}
