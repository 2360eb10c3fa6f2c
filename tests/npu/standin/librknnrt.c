/* Stands in for Rockchip's librknnrt.so: the calls that rknn-toolkit-lite2 2.5.0 makes, with the
 * faults that a test wants. It computes nothing: inputs go to a socket, outputs come from there.
 *
 * Environment: RKNN_STANDIN_PORTS, "in x 2 64 4;in prefix 2 16 7;out velocity 2 64 4";
 * RKNN_STANDIN_SOCKET, a Unix socket that answers every run with all outputs, f32 in order;
 * RKNN_STANDIN_FAULT, "init", "core", "set", "run", "get", "attr", "nan", "big", "zeros" or "hang", and
 * "run@3" for the third call only; RKNN_STANDIN_VERSION; RKNN_STANDIN_DRIVER; RKNN_STANDIN_LOG, a file.
 *
 * Layouts are those of the public C API, as lite2's own ctypes classes give them.
 */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SUCCESS 0
#define FAILURE -1
#define PORTS 8
#define QUERY_COUNT 0
#define QUERY_INPUT 1
#define QUERY_OUTPUT 2
#define QUERY_VERSION 5
#define TYPE_F32 0
#define TYPE_F16 1
#define FORMAT_UNDEFINED 3

#ifndef VERSION
#define VERSION "2.5.0"
#endif

/* The real library's version stands in its file like this. */
const char version_text[] = "librknnrt version: " VERSION " (stand-in@2026-01-01)";

struct attr {
    uint32_t index, n_dims, dims[16];
    char name[256];
    uint32_t n_elems, size;
    int32_t fmt, type, qnt_type;
    int8_t fl;
    int32_t zp;
    float scale;
    uint32_t w_stride, size_with_stride;
    uint8_t pass_through;
    uint32_t h_stride;
};
struct input { uint32_t index; void *buf; uint32_t size; uint8_t pass_through; int32_t type, fmt; };
struct output { uint8_t want_float, is_prealloc; uint32_t index; void *buf; uint32_t size; };
struct counts { uint32_t inputs, outputs; };
struct versions { char api[256], driver[256]; };

static struct attr inputs[PORTS], outputs[PORTS];
static uint32_t n_inputs, n_outputs;
static void *data[PORTS];
static float *results[PORTS];
static int runs;
static int channel = -1;

static void note(const char *format, ...) {
    const char *path = getenv("RKNN_STANDIN_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return;
    va_list rest;
    va_start(rest, format);
    vfprintf(log, format, rest);
    va_end(rest);
    fputc('\n', log);
    fclose(log);
}

/* Whether a fault is wanted now; "name@3" is for the third run alone. */
static int wanted(const char *name) {
    const char *fault = getenv("RKNN_STANDIN_FAULT");
    size_t length = strlen(name);
    if (!fault || strncmp(fault, name, length)) return 0;
    if (fault[length] == '@') return atoi(fault + length + 1) == runs;
    return fault[length] == 0;
}

static void read_ports(void) {
    char *text = strdup(getenv("RKNN_STANDIN_PORTS") ? getenv("RKNN_STANDIN_PORTS") : "");
    char *outer = NULL;
    n_inputs = n_outputs = 0;
    for (char *port = strtok_r(text, ";", &outer); port; port = strtok_r(NULL, ";", &outer)) {
        char *inner = NULL, *kind = strtok_r(port, " ", &inner), *name = strtok_r(NULL, " ", &inner);
        int in = !strcmp(kind, "in");
        struct attr *attr = in ? &inputs[n_inputs] : &outputs[n_outputs];
        memset(attr, 0, sizeof *attr);
        attr->index = in ? n_inputs++ : n_outputs++;
        strncpy(attr->name, name, sizeof attr->name - 1);
        attr->n_elems = 1;
        for (char *size = strtok_r(NULL, " ", &inner); size; size = strtok_r(NULL, " ", &inner)) {
            attr->dims[attr->n_dims] = (uint32_t)atoi(size);
            attr->n_elems *= attr->dims[attr->n_dims++];
        }
        attr->size = attr->n_elems * 2;
        attr->type = TYPE_F16;
        attr->fmt = FORMAT_UNDEFINED;
    }
    free(text);
}

static int whole(int write_out, void *buffer, size_t size) {
    for (size_t done = 0; done < size;) {
        char *at = (char *)buffer + done;
        ssize_t moved = write_out ? write(channel, at, size - done) : read(channel, at, size - done);
        if (moved <= 0) return FAILURE;
        done += (size_t)moved;
    }
    return SUCCESS;
}

static int ask(void) {
    if (channel < 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const char *path = getenv("RKNN_STANDIN_SOCKET");
        if (!path) return FAILURE;
        strncpy(address.sun_path, path, sizeof address.sun_path - 1);
        channel = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(channel, (struct sockaddr *)&address, sizeof address)) return FAILURE;
    }
    for (uint32_t i = 0; i < n_inputs; i++)
        if (whole(1, data[i], inputs[i].n_elems * 4)) return FAILURE;
    for (uint32_t i = 0; i < n_outputs; i++)
        if (whole(0, results[i], outputs[i].n_elems * 4)) return FAILURE;
    return SUCCESS;
}

int rknn_init(uint64_t *context, void *model, uint32_t size, uint32_t flag, void *extend) {
    (void)extend;
    note("init size=%u flags=%u magic=%.4s", size, flag, size >= 4 ? (char *)model : "");
    if (wanted("init")) return -1;
    read_ports();
    for (uint32_t i = 0; i < n_inputs; i++) data[i] = calloc(inputs[i].n_elems, 4);
    for (uint32_t i = 0; i < n_outputs; i++) results[i] = calloc(outputs[i].n_elems, 4);
    *context = 1;
    return SUCCESS;
}

int rknn_init2(uint64_t *context, void *model, uint32_t size, uint32_t flag, void *extend) {
    return rknn_init(context, model, size, flag, extend);
}

int rknn_destroy(uint64_t context) {
    note("destroy %llu", (unsigned long long)context);
    for (uint32_t i = 0; i < n_inputs; i++) free(data[i]);
    for (uint32_t i = 0; i < n_outputs; i++) free(results[i]);
    n_inputs = n_outputs = 0;
    return SUCCESS;
}

int rknn_query(uint64_t context, int command, void *info, uint32_t size) {
    (void)context;
    if (command == QUERY_COUNT) {
        *(struct counts *)info = (struct counts){n_inputs, n_outputs};
        return SUCCESS;
    }
    if (command == QUERY_VERSION) {
        struct versions *found = info;
        const char *version = getenv("RKNN_STANDIN_VERSION"), *driver = getenv("RKNN_STANDIN_DRIVER");
        snprintf(found->api, sizeof found->api, "%s (stand-in@2026-01-01)", version ? version : VERSION);
        snprintf(found->driver, sizeof found->driver, "%s", driver ? driver : "0.9.8");
        return SUCCESS;
    }
    if (command == QUERY_INPUT || command == QUERY_OUTPUT) {
        struct attr *found = info;
        int in = command == QUERY_INPUT;
        if (found->index >= (in ? n_inputs : n_outputs) || wanted("attr")) return FAILURE;
        memcpy(info, in ? &inputs[found->index] : &outputs[found->index],
               size < sizeof(struct attr) ? size : sizeof(struct attr));
        return SUCCESS;
    }
    note("query %d size=%u: unknown", command, size);
    return FAILURE;
}

int rknn_set_core_mask(uint64_t context, int mask) {
    (void)context;
    note("core mask %d", mask);
    return wanted("core") ? -5 : SUCCESS;
}

/* lite2 2.5.0 binds this one when it starts: an older library ends in an AttributeError. */
#ifndef OLD_LIBRARY
int rknn_set_input_shapes(uint64_t context, uint32_t count, struct attr *given) {
    (void)context;
    (void)count;
    (void)given;
    return FAILURE;
}
#endif

int rknn_inputs_set(uint64_t context, uint32_t count, struct input *given) {
    (void)context;
    if (!runs) {
        for (uint32_t i = 0; i < count; i++)
            note("input %u size=%u type=%d format=%d pass=%d", given[i].index, given[i].size,
                 given[i].type, given[i].fmt, given[i].pass_through);
    }
    runs++;
    if (wanted("set")) return -1;
    for (uint32_t i = 0; i < count; i++) {
        struct attr *attr = &inputs[given[i].index];
        if (given[i].type != TYPE_F32 || given[i].size != attr->n_elems * 4) return FAILURE;
        memcpy(data[given[i].index], given[i].buf, given[i].size);
    }
    return SUCCESS;
}

int rknn_run(uint64_t context, void *extend) {
    (void)context;
    (void)extend;
    if (wanted("run")) return -1;
    if (wanted("hang")) sleep(3600);
    return ask();
}

int rknn_outputs_get(uint64_t context, uint32_t count, struct output *found, void *extend) {
    (void)context;
    (void)extend;
    if (wanted("get")) return -1;
    for (uint32_t i = 0; i < count; i++) {
        float *values = results[found[i].index];
        uint32_t elements = outputs[found[i].index].n_elems;
        if (!found[i].is_prealloc) found[i].buf = malloc(elements * 4);
        found[i].size = elements * 4;
        memcpy(found[i].buf, values, elements * 4);
        if (wanted("nan")) ((float *)found[i].buf)[elements / 2] = NAN;
        if (wanted("big")) ((float *)found[i].buf)[elements / 2] = 65504.0f;
        if (wanted("zeros")) memset(found[i].buf, 0, elements * 4);
    }
    return SUCCESS;
}

int rknn_outputs_release(uint64_t context, uint32_t count, struct output *found) {
    (void)context;
    for (uint32_t i = 0; i < count; i++)
        if (!found[i].is_prealloc) free(found[i].buf);
    return SUCCESS;
}
