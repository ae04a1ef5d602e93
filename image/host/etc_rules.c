#include "image/host/etc_priv.h"

#include <fnmatch.h>
#include <string.h>
#include <strings.h>

/* What comes in. The important ones first: the caps on count and size cut from the end. */
const struct etc_rule etc_rules[] = {
    { "ld.so.cache", 0 },
    { "ld.so.conf", 0 },
    { "ld.so.conf.d", 0 },
    { "alternatives", 0 },
    { "nsswitch.conf", 0 },
    { "host.conf", RULE_COLD },
    { "gai.conf", RULE_COLD },
    { "localtime", 0 },
    { "timezone", 0 },
    { "os-release", 0 },
    { "lsb-release", 0 },
    { "debian_version", RULE_COLD },
    { "redhat-release", RULE_COLD },
    { "fedora-release", RULE_COLD },
    { "system-release", RULE_COLD },
    { "ssl/certs", RULE_COLD },
    { "ssl/openssl.cnf", 0 },
    { "ssl/cert.pem", 0 },
    { "pki/tls/certs", RULE_COLD },
    { "pki/tls/cert.pem", 0 },
    { "pki/tls/openssl.cnf", 0 },
    { "pki/ca-trust/extracted", RULE_COLD },
    { "crypto-policies", RULE_COLD },
    { "ca-certificates*", RULE_COLD },
    { "services", RULE_COLD },
    { "protocols", RULE_COLD },
    { "rpc", RULE_COLD },
    { "networks", RULE_COLD },
    { "ethertypes", RULE_COLD },
    { "login.defs", RULE_COLD },
    { "shells", 0 },
    { "profile", 0 },
    { "profile.d", 0 },
    { "bash.bashrc", 0 },
    { "bashrc", 0 },
    { "inputrc", RULE_COLD },
    { "zsh", RULE_COLD },
    { "locale.alias", RULE_COLD },
    { "locale.conf", 0 },
    { "default/locale", 0 },
    { "default/useradd", 0 },
    { "skel", RULE_COLD },
    { "mime.types", RULE_COLD },
    { "magic", RULE_COLD },
    { "magic.mime", RULE_COLD },
    { "manpath.config", RULE_COLD },
    { "man_db.conf", RULE_COLD },
    { "groff", RULE_COLD },
    { "terminfo", RULE_COLD },
    { "ssh/ssh_config", 0 },
    { "ssh/ssh_config.d", 0 },
    { "perl", RULE_COLD },
    { "python3*", RULE_COLD },
    { "java-*", RULE_COLD },
    { "maven", RULE_COLD },
    { "pip.conf", 0 },
    { "fonts", RULE_COLD },
    { "vim", RULE_COLD },
    { "nanorc", RULE_COLD },
    { "emacs", RULE_COLD },
    { "gdb", RULE_COLD },
    { "fpc.cfg", RULE_COLD },
    { "fpc-*.cfg", RULE_COLD },
    { "gnucobol", RULE_COLD },
    { "R", RULE_COLD },
    { "texmf", RULE_COLD },
    { "ImageMagick-*", RULE_COLD },
    { "OpenCL", RULE_COLD },
    { "vulkan", RULE_COLD },
    { "glvnd", RULE_COLD },
    { "php", RULE_COLD },
    { "mono", RULE_COLD },
    { "dotnet", RULE_COLD },
    { "julia", RULE_COLD },
    { "octave.conf", RULE_COLD },
    { "matplotlibrc", RULE_COLD },
    { "openmpi", RULE_COLD },
    { "ghostscript", RULE_COLD },
    { "papersize", RULE_COLD },
    { "dictionaries-common", RULE_COLD },
    { "chromium.d", RULE_COLD },
    { "gtk-*", RULE_COLD },
    { "X11/app-defaults", RULE_COLD },
    { "X11/rgb.txt", RULE_COLD },
    { "mke2fs.conf", RULE_COLD },
    { "xattr.conf", RULE_COLD },
    { "netconfig", RULE_COLD },
    { "sgml", RULE_COLD },
    { "xml", RULE_COLD },
    { "bash_completion.d", RULE_COLD },
    { "apt", RULE_COLD },
    { "dpkg", RULE_COLD },
    { "rmt", RULE_COLD },
    { "debconf.conf", RULE_ROOT },
    { "adduser.conf", RULE_ROOT },
    { "deluser.conf", RULE_ROOT },
    { "ucf.conf", RULE_ROOT },
    { "pam.conf", RULE_ROOT },
    { "pam.d", RULE_ROOT | RULE_COLD },
    { "security/limits.conf", RULE_ROOT },
    { "init.d", RULE_ROOT | RULE_COLD },
    { "rc?.d", RULE_ROOT | RULE_COLD },
    { "systemd/system", RULE_ROOT | RULE_COLD },
    { "tmpfiles.d", RULE_ROOT | RULE_COLD },
    { "cron.daily", RULE_ROOT | RULE_COLD },
    { "logrotate.d", RULE_ROOT | RULE_COLD },
    { "xdg", RULE_ROOT | RULE_COLD },
};
const size_t etc_n_rules = ARRAY_LEN(etc_rules);

/* What never comes in, inside the directories above too; compared without case. */
static const char *const denied[] = {
    "*.key",      "*.p12",        "*.pfx",        "*.keytab",   "*.jks",      "*.kdbx",
    "*.ppk",      "*_key",        "id_rsa*",      "id_dsa*",    "id_ecdsa*",  "id_ed25519*",
    "ssh_host_*", "auth.conf*",   "*credential*", "*secret*",   "*.netrc",    "netrc",
    "*npmrc*",    ".pypirc",      ".htpasswd",    "wgetrc*",    ".wgetrc",    "environment",
    "*.tfstate*", "shadow*",      "gshadow*",     "opasswd*",   "sasldb*",    "krb5*",
    "subuid*",    "subgid*",      "machine-id",   "fstab*",     "exports*",   ".env",
    ".env.*",     "*.env",        ".ssh",         ".aws",       ".gnupg",     ".kube",
    ".docker",    "private",      "kubernetes",   "docker",     "containers", "networkmanager",
    "wireguard",  "openvpn",      "ppp",          "postgresql", "*.wgconf",   "*.ovpn",
    ".git",       "*.kubeconfig", "kubeconfig",   ".my.cnf",    ".pgpass",    "pgpass*",
    ".cargo",     "hosts.equiv",  "*.dpkg-bak",   "*.swp",
};

bool etc_name_denied(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(denied); i++)
        if (fnmatch(denied[i], name, FNM_CASEFOLD) == 0)
            return true;
    return false;
}

bool etc_name_odd(const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            return true;
    return false;
}

/* The normal absolute form of `text` seen from the directory of /etc/`path`; NULL: above the root. */
static char *link_target(const char *path, const char *text)
{
    const char *slash = strrchr(path, '/');
    AUTOFREE char *full =
        text[0] == '/' ? str_dup(text)
                       : str_printf("/etc/%.*s/%s", slash ? (int)(slash - path) : 0, path, text);
    AUTOSTR struct str out = STR_INIT;
    char *save = NULL;

    for (char *c = strtok_r(full, "/", &save); c; c = strtok_r(NULL, "/", &save)) {
        if (strcmp(c, ".") == 0)
            continue;
        if (strcmp(c, "..") == 0) {
            char *last = out.p ? strrchr(out.p, '/') : NULL;
            if (!last)
                return NULL;
            *last = '\0';
            out.len = (size_t)(last - out.p);
            continue;
        }
        str_addf(&out, "/%s", c);
    }
    return str_take(&out);
}

bool etc_link_allowed(const char *path, const char *text)
{
    static const char *const roots[] = { "/usr",   "/bin",    "/sbin", "/lib", "/lib32",
                                         "/lib64", "/libx32", "/opt",  "/etc" };
    if (!text[0] || etc_name_odd(text))
        return false;
    AUTOFREE char *t = link_target(path, text);
    if (!t || !t[0])
        return false;
    if (strcmp(t, "/dev/null") == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(roots); i++)
        if (path_below(t, roots[i]))
            return true;
    return false;
}

uint64_t etc_hash(uint64_t h, const char *s)
{
    if (!h)
        h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return (h ^ 0xff) * 0x100000001b3u; /* the end counts */
}
