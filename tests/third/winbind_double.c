/* Stands in for libwbclient.so.0 in tests of faults: a domain LAB with the user alice (RID 1103) and the group Domain Users, and no
   winbindd. The file named by DOUBLE has a line `FUNCTION FAULT` for each function that must fail now; `*` means all.

   hang     does not return until the file says something else
   never    does not return at all
   slow     returns after a second
   fail     WBC_ERR_UNKNOWN_FAILURE
   down     WBC_ERR_WINBIND_NOT_AVAILABLE
   null     succeeds without an answer
   empty    succeeds with an answer whose texts are null and whose numbers are zero
   huge     succeeds with counts beyond all limits, and identifiers of too many parts

   The file DOUBLE.asked gets a line with the name of each function that is called.

   DOUBLE_KEY is the NTLMv2 response key of alice in hexadecimal digits (MS-NLMP section 3.3.2). */

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { SUCCESS = 0, UNKNOWN_FAILURE = 2, NOT_AVAILABLE = 6, DOMAIN_NOT_FOUND = 7, AUTH_ERROR = 10 };
enum { USER = 1, GROUP = 2, DOMAIN = 3, UNKNOWN = 8 };
enum { UID = 1, GID = 2 };
enum { ALICE = 1103, USERS = 513, NUMBERS = 100000 };

struct sid { uint8_t revision, count, authority[6]; uint32_t subs[15]; };
struct sid_attr { struct sid sid; uint32_t attributes; };
struct details { uint32_t version; char *winbind; char separator; char *machine, *domain, *dns; };
struct domain { char *name, *dns; struct sid sid; uint32_t flags[3]; char *routing; };
struct name { int kind; char *name; int domain; };
struct id { int kind; uint32_t id; };
struct logon {
    const char *account, *domain, *workstation;
    uint32_t flags, control;
    int level;
    struct { uint8_t challenge[8]; uint32_t nt_len; uint8_t *nt; uint32_t lm_len; uint8_t *lm; } response;
};
struct user {
    uint32_t flags;
    char *account, *principal, *full, *domain, *dns;
    uint32_t acct_flags;
    uint8_t key[16], lm_key[8];
    uint16_t counts[2];
    uint64_t times[6];
    char *texts[5];
    uint32_t sids_count;
    struct sid_attr *sids;
};
struct error { uint32_t status; char *name; int32_t pam; char *text; int authoritative; };

static const struct sid LAB = {1, 4, {0, 0, 0, 0, 0, 5}, {21, 1, 2, 3}};

static struct sid of_lab(uint32_t rid) {
    struct sid sid = LAB;
    sid.subs[sid.count++] = rid;
    return sid;
}

static struct sid too_long(void) {
    struct sid sid = LAB;
    memset(sid.subs, 0xff, sizeof sid.subs);
    sid.count = 255;
    return sid;
}

static uint32_t rid_of(const struct sid *sid) {
    int is_of_lab = sid->count == 5 && memcmp(sid->subs, LAB.subs, 16) == 0;
    return is_of_lab ? sid->subs[4] : 0;
}

static int is_domain(const char *name) {
    return !strcasecmp(name, "LAB") || !strcasecmp(name, "lab.test");
}

/* The fault of a function now; empty without one. */
static const char *fault_of(const char *function) {
    static __thread char fault[16];
    char line[64], name[32], word[16];
    fault[0] = 0;
    FILE *file = fopen(getenv("DOUBLE"), "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%31s %15s", name, word) == 2 && (!strcmp(name, "*") || !strcmp(name, function)))
            strcpy(fault, word);
    if (file)
        fclose(file);
    return fault;
}

/* Waits or fails as the file wants; -1 to go on, with the fault that the answer must have. */
static int faulty(const char *function, const char **fault) {
    char asked[4096];
    snprintf(asked, sizeof asked, "%s.asked", getenv("DOUBLE"));
    FILE *file = fopen(asked, "a");
    if (file)
        fprintf(file, "%s\n", function), fclose(file);
    *fault = fault_of(function);
    if (!strcmp(*fault, "never"))
        for (;;)
            pause();
    while (!strcmp(*fault, "hang")) {
        usleep(50000);
        *fault = fault_of(function);
    }
    if (!strcmp(*fault, "slow"))
        sleep(1);
    if (!strcmp(*fault, "fail"))
        return UNKNOWN_FAILURE;
    return strcmp(*fault, "down") ? -1 : NOT_AVAILABLE;
}

#define BEGIN(name)                    \
    const char *fault;                 \
    int failure = faulty(name, &fault); \
    if (failure >= 0)                  \
        return failure;                \
    int is_null = !strcmp(fault, "null"), is_empty = !strcmp(fault, "empty"), is_huge = !strcmp(fault, "huge"); \
    (void)is_null, (void)is_empty, (void)is_huge

void *wbcCtxCreate(void) { return calloc(1, 1); }
void wbcCtxFree(void *context) { free(context); }
/* Strings in answers are constants. */
void wbcFreeMemory(void *memory) { free(memory); }

int wbcCtxInterfaceDetails(void *context, struct details **out) {
    (void)context;
    BEGIN("details");
    if (is_null)
        return SUCCESS;
    *out = calloc(1, sizeof **out);
    if (!is_empty)
        **out = (struct details){32, "4.17", '\\', "GW", "LAB", "lab.test"};
    return SUCCESS;
}

int wbcCtxPingDc(void *context, const char *domain, struct error **error) {
    (void)context, (void)domain, (void)error;
    BEGIN("ping");
    return SUCCESS;
}

int wbcCtxDomainInfo(void *context, const char *name, struct domain **out) {
    (void)context;
    BEGIN("domain");
    if (!is_domain(name) && *name)
        return DOMAIN_NOT_FOUND;
    if (is_null)
        return SUCCESS;
    *out = calloc(1, sizeof **out);
    if (!is_empty)
        **out = (struct domain){"LAB", "lab.test", is_huge ? too_long() : LAB, {0}, ""};
    return SUCCESS;
}

int wbcCtxListTrusts(void *context, struct domain **out, size_t *count) {
    (void)context;
    BEGIN("trusts");
    *count = is_huge ? SIZE_MAX : 2;
    if (is_null)
        return SUCCESS;
    *out = calloc(3, sizeof **out);
    if (!is_empty) {
        (*out)[0] = (struct domain){"BUILTIN", "", {1, 1, {0, 0, 0, 0, 0, 5}, {32}}, {0}, ""};
        (*out)[1] = (struct domain){"LAB", "lab.test", LAB, {0}, ""};
    }
    return SUCCESS;
}

int wbcCtxSidsToUnixIds(void *context, const struct sid *sids, uint32_t count, struct id *ids) {
    (void)context;
    BEGIN("numbers");
    for (uint32_t n = 0; n < count && !is_null && !is_empty; n++) {
        uint32_t rid = rid_of(&sids[n]);
        ids[n] = is_huge ? (struct id){99, UINT32_MAX} : rid == ALICE ? (struct id){UID, NUMBERS + rid} : (struct id){GID, NUMBERS + rid};
        if (!rid)
            ids[n] = (struct id){0, UINT32_MAX};
    }
    return SUCCESS;
}

int wbcCtxUnixIdsToSids(void *context, const struct id *ids, uint32_t count, struct sid *sids) {
    (void)context;
    BEGIN("sids");
    for (uint32_t n = 0; n < count && !is_null && !is_empty; n++) {
        memset(&sids[n], 0, sizeof sids[n]);
        if (is_huge)
            sids[n] = too_long();
        else if (ids[n].id == NUMBERS + ALICE || ids[n].id == NUMBERS + USERS)
            sids[n] = of_lab(ids[n].id - NUMBERS);
    }
    return SUCCESS;
}

static const char *name_of(uint32_t rid, int *kind) {
    *kind = rid == ALICE ? USER : rid == USERS ? GROUP : UNKNOWN;
    return rid == ALICE ? "alice" : rid == USERS ? "Domain Users" : NULL;
}

int wbcCtxLookupSid(void *context, const struct sid *sid, char **domain, char **name, int *kind) {
    (void)context;
    BEGIN("names");
    const char *found = name_of(rid_of(sid), kind);
    int is_lab = sid->count == 4 && !memcmp(sid->subs, LAB.subs, 16);
    if (is_lab)
        found = "", *kind = DOMAIN;
    if (!found)
        return DOMAIN_NOT_FOUND;
    if (is_huge)
        *kind = INT32_MAX;
    if (is_null || is_empty)
        return SUCCESS;
    *domain = strdup("LAB");
    *name = strdup(found);
    return SUCCESS;
}

int wbcCtxLookupSids(void *context, const struct sid *sids, int count, struct domain **domains, int *domains_count, struct name **names) {
    (void)context, (void)domains_count;
    BEGIN("names");
    if (is_null)
        return SUCCESS;
    *domains = calloc(2, sizeof **domains);
    *names = calloc(count + 1, sizeof **names);
    if (is_empty)
        return SUCCESS;
    (*domains)[0] = (struct domain){"LAB", "lab.test", LAB, {0}, ""};
    for (int n = 0; n < count; n++) {
        int kind;
        const char *name = name_of(rid_of(&sids[n]), &kind);
        (*names)[n] = (struct name){is_huge ? INT32_MAX : kind, (char *)name, is_huge ? INT32_MAX : 0};
    }
    return SUCCESS;
}

int wbcCtxLookupName(void *context, const char *domain, const char *name, struct sid *sid, int *kind) {
    (void)context;
    BEGIN("lookup");
    int is_alice = !strcasecmp(name, "alice"), is_users = !strcasecmp(name, "Domain Users");
    if (!is_domain(domain) || !(is_alice || is_users))
        return DOMAIN_NOT_FOUND;
    if (!is_null && !is_empty)
        *sid = is_huge ? too_long() : of_lab(is_alice ? ALICE : USERS), *kind = is_alice ? USER : GROUP;
    return SUCCESS;
}

int wbcCtxLookupUserSids(void *context, const struct sid *user, bool of_domains, uint32_t *count, struct sid **out) {
    (void)context, (void)of_domains;
    BEGIN("groups");
    if (rid_of(user) != ALICE)
        return DOMAIN_NOT_FOUND;
    *count = is_huge ? UINT32_MAX : 2;
    if (is_null)
        return SUCCESS;
    *out = calloc(2, sizeof **out);
    if (!is_empty)
        (*out)[0] = is_huge ? too_long() : of_lab(ALICE), (*out)[1] = of_lab(USERS);
    return SUCCESS;
}

static void mac(const uint8_t *key, const uint8_t *data, size_t len, uint8_t out[16]) {
    unsigned size = 16;
    HMAC(EVP_md5(), key, 16, data, len, out, &size);
}

static int refused(struct error **error) {
    *error = calloc(1, sizeof **error);
    **error = (struct error){0xc000006a, "NT_STATUS_WRONG_PASSWORD", 0, "", 1};
    return AUTH_ERROR;
}

int wbcCtxAuthenticateUserEx(void *context, const struct logon *logon, struct user **out, struct error **error) {
    (void)context;
    BEGIN("logon");
    uint8_t key[16], proof[16], text[8192];
    for (int n = 0; n < 16; n++)
        sscanf(getenv("DOUBLE_KEY") + 2 * n, "%2hhx", &key[n]);
    uint32_t len = logon->response.nt_len;
    if (strcasecmp(logon->account, "alice") || len < 16 || len > sizeof text)
        return refused(error);
    memcpy(text, logon->response.challenge, 8);
    memcpy(text + 8, logon->response.nt + 16, len - 16);
    mac(key, text, 8 + len - 16, proof);
    if (memcmp(proof, logon->response.nt, 16))
        return is_null ? AUTH_ERROR : refused(error);
    if (is_null)
        return SUCCESS;
    struct user *user = *out = calloc(1, sizeof **out);
    if (is_empty)
        return SUCCESS;
    user->account = "alice";
    user->domain = "LAB";
    mac(key, proof, 16, user->key);
    user->sids_count = is_huge ? UINT32_MAX : 2;
    /* One after the other in the same memory would be freed twice. */
    static struct sid_attr sids[2];
    sids[0].sid = of_lab(ALICE);
    sids[1].sid = of_lab(USERS);
    user->sids = sids;
    return SUCCESS;
}
