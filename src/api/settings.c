/* settings.c - see settings.h; and hak_option_set and its like. */
#include "api/settings.h"

#include "api/names.h"
#include "api/options.h"
#include "api/start.h"
#include "hakmem/hakmem.h"
#include "heap/heap.h"
#include "os/os.h"
#include "region/window.h"
#include "span/span.h"
#include "watch/out.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

bool settings_read(size_t index, struct report_setting *setting) {
    if (index >= OPTION_TOTAL) return false;
    setting->name = option_infos[index].name;
    setting->source = option_source_name(options_source(&start_settings, (enum option_id)index));
    options_value(&start_settings, (enum option_id)index, setting->value, sizeof setting->value);
    return true;
}

HAK_EXPORT HAK_COLD int hak_option_set(const char *name, const char *value) {
    start_once();
    int error = start_change_option(name, value);
    if (error == 0) return 0;
    errno = error;
    return -1;
}

HAK_EXPORT HAK_COLD int hak_option_get(const char *name, char *value, size_t bytes) {
    char text[OPTION_VALUE_BYTES];
    start_once();
    enum option_id id = option_find(name);
    if (id == OPTION_TOTAL) {
        errno = ENOENT;
        return -1;
    }
    start_read_option(id, text, sizeof text);
    if (strlen(text) >= bytes) {
        errno = ERANGE;
        return -1;
    }
    memcpy(value, text, strlen(text) + 1);
    return 0;
}

HAK_EXPORT const char *hak_option_source(const char *name) {
    start_once();
    enum option_id id = option_find(name);
    return id == OPTION_TOTAL ? NULL : option_source_name(options_source(&start_settings, id));
}

HAK_EXPORT void hak_on_soft_limit(void (*callback)(void *context), void *context) {
    start_once();
    heap_on_soft_limit(callback, context);
}

/* ---- hakmem show-config ------------------------------------------------------------------------------ */

/* Writes the value that was decided at run time; false if that is the option's own. */
static bool decided(enum option_id id, char *text, size_t bytes) {
    const struct option_info *info = &option_infos[id];
    struct span_counts spans;
    span_counts_read(&spans);
    if (id == OPTION_window && start_settings.window == OPTION_AUTO)
        option_format(info, window.pages * PAGE_BYTES, text, bytes);
    else if (id == OPTION_decay && spans.half_life_ms != start_settings.decay)
        option_format(info, spans.half_life_ms, text, bytes);
    else
        return false;
    return true;
}

static void show(struct out *out, enum option_id id) {
    const struct option_info *info = &option_infos[id];
    char text[OPTION_VALUE_BYTES];
    out_print(out, "{\"name\": \"%s\", \"value\": ", info->name);
    options_value(&start_settings, id, text, sizeof text);
    out_quote(out, text);
    out_print(out, ", \"source\": \"%s\", \"default\": ", option_source_name(options_source(&start_settings, id)));
    option_format(info, info->initial, text, sizeof text);
    out_quote(out, text);
    if (decided(id, text, sizeof text)) {
        out_print(out, ", \"decided\": ");
        out_quote(out, text);
    }
    option_describe(info, text, sizeof text);
    out_print(out, ", \"accepts\": ");
    out_quote(out, text);
    out_print(out, ", \"anytime\": %s, \"text\": ", info->anytime ? "true" : "false");
    out_quote(out, info->text);
    out_print(out, ", \"cost\": ");
    out_quote(out, info->cost);
    out_print(out, "}");
}

HAK_COLD bool settings_print(int fd) {
    struct out out;
    out_begin(&out, fd);
    out_print(&out, "{\"hakmem\": \"%s\", \"options\": [\n", hak_version());
    for (unsigned id = 0; id < OPTION_TOTAL; id++) {
        show(&out, (enum option_id)id);
        out_print(&out, id + 1 < OPTION_TOTAL ? ",\n" : "\n");
    }
    out_print(&out, "], \"other_variables\": [");
    for (size_t i = 0; i < OPTION_OTHERS; i++)
        out_print(&out, "%s\"%s\"", i == 0 ? "" : ", ", option_other_variables[i]);
    out_print(&out, "]}\n");
    return out_end(&out);
}

void settings_show(void) {
    const char *asked = os_variable("HAKMEM_SHOW_OPTIONS");
    if (asked != NULL && *asked != '\0') os_exit(settings_print(STDOUT_FILENO) ? 0 : 1);
}
