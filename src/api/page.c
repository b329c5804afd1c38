/* page.c - the page of hakmem/stats_page.h: the addresses of all that other processes may read. Constant: it costs nothing. */
#include "hakmem/stats_page.h"

#include "api/options.h"
#include "api/start.h"
#include "hakmem/hakmem.h"
#include "ace/pressure.h"
#include "heap/large.h"
#include "heap/pressure.h"
#include "heap/purger.h"
#include "heap/registry.h"
#include "region/books.h"
#include "region/outside.h"
#include "slab/slab.h"
#include "span/state.h"
#include "watch/decisions.h"
#include "watch/failures.h"
#include "watch/foreign.h"

#include <stddef.h>

#define COUNT_OF(array) (uint32_t)(sizeof(array) / sizeof(array)[0])
#define FIELD(kind, name, type, member) \
    {name, (uint32_t)offsetof(type, member), (uint16_t)sizeof(((type *)0)->member), HAK_PAGE_##kind}

/* ---- the kernel ------------------------------------------------------------------------------------ */

static const struct hak_page_field kernel_fields[] = {
    FIELD(COUNTER, "reserved_bytes", struct os_counters, reserved_bytes),
    FIELD(COUNTER, "committed_bytes", struct os_counters, committed_bytes),
    FIELD(COUNTER, "purged_bytes", struct os_counters, purged_bytes),
    FIELD(COUNTER, "unmapped_bytes", struct os_counters, unmapped_bytes),
};

/* Of one call: the arrays `calls` and `refusals` have the same layout. */
static const struct hak_page_field call_fields[] = {
    {"made", 0, sizeof(uint64_t), HAK_PAGE_COUNTER},
    {"refused", (uint32_t)(offsetof(struct os_counters, refusals) - offsetof(struct os_counters, calls)),
     sizeof(uint64_t), HAK_PAGE_COUNTER},
};
static const struct hak_page_field call_name_fields[] = {{"name", 0, sizeof(char *), HAK_PAGE_STRING}};

/* ---- the window and its pages ------------------------------------------------------------------------ */

static const struct hak_page_field window_fields[] = {
    FIELD(ADDRESS, "base", struct window, base),
    FIELD(GAUGE, "pages", struct window, pages),
};
static const struct hak_page_field word_fields[] = {{"word", 0, sizeof(uint32_t), HAK_PAGE_GAUGE}};
static const struct hak_page_field record_fields[] = {
    FIELD(GAUGE, "kind", struct slab, span.kind),   FIELD(GAUGE, "class", struct slab, span.class),
    FIELD(GAUGE, "pages", struct slab, span.pages), FIELD(GAUGE, "head", struct slab, span.head),
    FIELD(GAUGE, "dirty", struct slab, span.dirty), FIELD(GAUGE, "free", struct slab, free),
    FIELD(GAUGE, "carved", struct slab, carved),    FIELD(GAUGE, "age", struct slab, age),
    FIELD(ADDRESS, "bits", struct slab, bits),      FIELD(GAUGE, "block_pages", struct large, pages),
};
static const struct hak_page_field chunk_fields[] = {
    FIELD(GAUGE, "used", struct chunk, used),         FIELD(GAUGE, "touched", struct chunk, touched),
    FIELD(GAUGE, "returned", struct chunk, returned), FIELD(GAUGE, "refused", struct chunk, refused),
    FIELD(GAUGE, "given", struct chunk, given),       FIELD(GAUGE, "zone", struct chunk, zone),
    FIELD(GAUGE, "no_huge", struct chunk, no_huge),   FIELD(GAUGE, "broken", struct chunk, broken),
    FIELD(GAUGE, "witness", struct chunk, witness),
};

#define SPAN_FIELD(name, kind, ...) FIELD(kind, #name, struct span_state, counts.name),
static const struct hak_page_field span_fields[] = {
    SPAN_COUNTS(SPAN_FIELD) FIELD(GAUGE, "end_page", struct span_state, end_page),
};
static const struct hak_page_field size_fields[] = {
    FIELD(GAUGE, "live", struct span_size_counts, live),
    FIELD(COUNTER, "taken", struct span_size_counts, taken),
};

/* ---- memory elsewhere -------------------------------------------------------------------------------- */

static const struct hak_page_field book_fields[] = {FIELD(GAUGE, "bytes", struct books_mapping, bytes)};
static const struct hak_page_field book_bytes_fields[] = {{"taken_bytes", 0, sizeof(uint64_t), HAK_PAGE_GAUGE}};
static const struct hak_page_field part_fields[] = {FIELD(NUMBER, "slots", struct outside_table, slots)};
static const struct hak_page_field outside_fields[] = {
    FIELD(ADDRESS, "address", struct outside_slot, address),
    FIELD(GAUGE, "bytes", struct outside_slot, bytes),
};

/* ---- classes, heaps, bins ------------------------------------------------------------------------------ */

static const struct hak_page_field class_fields[] = {
    FIELD(NUMBER, "block_bytes", struct slab_class, block_bytes),
    FIELD(NUMBER, "blocks", struct slab_class, blocks),
    FIELD(NUMBER, "pages", struct slab_class, pages),
};
static const struct hak_page_field heap_fields[] = {
    FIELD(GAUGE, "live", struct heap, state),
    FIELD(GAUGE, "thread_id", struct heap, thread_id),
    FIELD(GAUGE, "slabs", struct heap, slab_total),
    FIELD(GAUGE, "small_depth_bytes", struct heap, small_depth.bytes),
    FIELD(GAUGE, "medium_depth_bytes", struct heap, medium_depth.bytes),
    FIELD(ADDRESS, "buffer_bottom", struct heap, buffer_bottom),
    FIELD(ADDRESS, "buffer_top", struct heap, front.buffer_top),
    FIELD(GAUGE, "buffer_bytes", struct heap, front.buffer_bytes),
    FIELD(GAUGE, "buffer_given_bytes", struct heap, buffer_given_bytes),
};
static const struct hak_page_field bin_fields[] = {
    FIELD(GAUGE, "slabs", struct bin, slab_count),
    FIELD(GAUGE, "taken_blocks", struct bin, taken_blocks),
    FIELD(GAUGE, "depth", struct bin, depth),
    FIELD(COUNTER, "refills", struct bin, refills),
    FIELD(COUNTER, "refilled_blocks", struct bin, refilled_blocks),
    FIELD(COUNTER, "spills", struct bin, spills),
    FIELD(COUNTER, "spilled_blocks", struct bin, spilled_blocks),
    FIELD(COUNTER, "remote_blocks", struct bin, remote_blocks),
    FIELD(COUNTER, "adopted_slabs", struct bin, adopted_slabs),
};

/* The stacks: the blocks that a thread has cached lie between the two. */
static const struct hak_page_field stack_fields[] = {
    {"low", (uint32_t)(offsetof(struct heap, front.lo) - offsetof(struct heap, front.top)), sizeof(void *),
     HAK_PAGE_ADDRESS},
    {"top", 0, sizeof(void *), HAK_PAGE_ADDRESS},
};

/* ---- what else was counted ------------------------------------------------------------------------------- */

static const struct hak_page_field foreign_fields[] = {{"frees", 0, sizeof(uint64_t), HAK_PAGE_COUNTER}};
static const struct hak_page_field running_fields[] = {{"running", 0, sizeof(bool), HAK_PAGE_GAUGE}};
static const struct hak_page_field started_fields[] = {{"started", 0, sizeof(uint64_t), HAK_PAGE_COUNTER}};
static const struct hak_page_field setting_fields[] = {
    FIELD(GAUGE, "thread_cache_bytes", struct heap_settings, thread_cache_bytes),
};
static const struct hak_page_field pressed_fields[] = {{"times", 0, sizeof(counter), HAK_PAGE_COUNTER}};

/* ---- decisions, failures, options ------------------------------------------------------------------------------ */

/* A slot begins with the values of its record, in the record's layout. */
#define FAILURE_ROW(name, ...) FIELD(GAUGE, #name, struct failure, name),
static const struct hak_page_field failure_fields[] = {FAILURE_FIELDS(FAILURE_ROW)};
static const struct hak_page_field failure_count_fields[] = {{"count", 0, sizeof(counter), HAK_PAGE_COUNTER}};

#define DECISION_ROW(name, ...) FIELD(GAUGE, #name, struct decision, name),
static const struct hak_page_field decision_fields[] = {DECISION_FIELDS(DECISION_ROW)};
static const struct hak_page_field decision_count_fields[] = {{"count", 0, sizeof(counter), HAK_PAGE_COUNTER}};
static const struct hak_page_field kind_fields[] = {
    FIELD(STRING, "name", struct decision_kind, name),
    FIELD(STRING, "unit", struct decision_kind, unit),
};
static const struct hak_page_field reason_fields[] = {
    FIELD(STRING, "name", struct decision_reason, name),
    FIELD(NUMBER, "kind", struct decision_reason, kind),
    FIELD(STRING, "input0", struct decision_reason, inputs[0]),
    FIELD(STRING, "input1", struct decision_reason, inputs[1]),
    FIELD(STRING, "input2", struct decision_reason, inputs[2]),
};

/* Where each option's value lies. */
struct option_place {
    const void *value;
    const char *name;
    uint64_t bytes;
};
#define PLACE(name, ...) {&start_settings.name, #name, sizeof start_settings.name},
static const struct option_place option_places[] = {OPTION_TABLE(PLACE, PLACE, PLACE, PLACE, PLACE)};
static const struct hak_page_field option_fields[] = {
    FIELD(ADDRESS, "value", struct option_place, value),
    FIELD(STRING, "name", struct option_place, name),
    FIELD(NUMBER, "bytes", struct option_place, bytes),
};
static const struct hak_page_field info_fields[] = {
    FIELD(STRING, "name", struct option_info, name),
    FIELD(NUMBER, "type", struct option_info, type),
    FIELD(NUMBER, "anytime", struct option_info, anytime),
    FIELD(NUMBER, "minimum", struct option_info, minimum),
    FIELD(NUMBER, "maximum", struct option_info, maximum),
    FIELD(STRING, "word", struct option_info, word),
    FIELD(NUMBER, "word_value", struct option_info, word_value),
    FIELD(ADDRESS, "choices", struct option_info, choices),
    FIELD(NUMBER, "choice_count", struct option_info, choice_count),
    FIELD(NUMBER, "initial", struct option_info, initial),
    FIELD(STRING, "cost", struct option_info, cost),
    FIELD(STRING, "text", struct option_info, text),
};
static const struct hak_page_field choice_fields[] = {FIELD(STRING, "word", struct option_choice, word)};
static const struct hak_page_field source_fields[] = {{"source", 0, 1, HAK_PAGE_GAUGE}};
static const struct hak_page_field file_fields[] = {{"profile_file", 0, 1, HAK_PAGE_GAUGE}};

static const struct limits {
    uint64_t page_bytes, chunk_pages, word_class_mask, word_large;
    uint64_t span_none, span_free, span_free_last, span_used, slab_searched;
} limits = {PAGE_BYTES, CHUNK_PAGES, WORD_CLASS_MASK, WORD_LARGE, SPAN_NONE,
            SPAN_FREE,  SPAN_FREE_LAST, SPAN_USED,    SLAB_SEARCHED};
#define LIMIT(name) FIELD(NUMBER, #name, struct limits, name)
static const struct hak_page_field limit_fields[] = {
    LIMIT(page_bytes), LIMIT(chunk_pages),    LIMIT(word_class_mask), LIMIT(word_large),   LIMIT(span_none),
    LIMIT(span_free),  LIMIT(span_free_last), LIMIT(span_used),       LIMIT(slab_searched),
};

/* ---- the tables ------------------------------------------------------------------------------------------ */

/* The tables that contain others come first, in this order. */
enum { TABLE_HEAPS, TABLE_COMMONS, TABLE_OUTSIDE };

#define TABLE(name, place, address, fields, bytes, count, next, parent) \
    {name, (uint64_t)(uintptr_t)(address), fields, COUNT_OF(fields), HAK_PAGE_##place, bytes, count, next, parent}
#define ARRAY(name, address, fields, bytes, count) TABLE(name, ARRAY, address, fields, bytes, count, 0, 0)
#define POINTED(name, address, fields, bytes) TABLE(name, POINTED, address, fields, bytes, 0, 0, 0)
#define INSIDE(name, parent, address, fields, bytes, count) \
    TABLE(name, INSIDE, address, fields, bytes, count, 0, parent)

static const struct hak_page_table tables[] = {
    [TABLE_HEAPS] = TABLE("heaps", LIST, &all_heaps, heap_fields, 0, 0, offsetof(struct heap, next), 0),
    [TABLE_COMMONS] = ARRAY("commons", &commons, heap_fields, sizeof commons, 1),
    [TABLE_OUTSIDE] = TABLE("outside_parts", LIST, &outside_first.next, part_fields, 0, 0,
                            offsetof(struct outside_table, next), 0),
    INSIDE("bins", TABLE_HEAPS, offsetof(struct heap, bins), bin_fields, sizeof(struct bin), SIZE_CLASSES),
    INSIDE("commons_bins", TABLE_COMMONS, offsetof(struct heap, bins), bin_fields, sizeof(struct bin), SIZE_CLASSES),
    INSIDE("stacks", TABLE_HEAPS, offsetof(struct heap, front.top), stack_fields, sizeof(void *), SIZE_CLASSES),
    ARRAY("classes", slab_classes, class_fields, sizeof slab_classes[0], SIZE_CLASSES),
    ARRAY("kernel", &os_counters, kernel_fields, sizeof os_counters, 1),
    ARRAY("calls", os_counters.calls, call_fields, sizeof os_counters.calls[0], OS_CALL_KINDS),
    ARRAY("call_names", os_call_names, call_name_fields, sizeof os_call_names[0], OS_CALL_KINDS),
    ARRAY("spans", &spans, span_fields, sizeof spans, 1),
    ARRAY("span_sizes", span_sizes, size_fields, sizeof span_sizes[0], SPAN_SIZES),
    ARRAY("window", &window, window_fields, sizeof window, 1),
    POINTED("words", &window.words, word_fields, sizeof window.words[0]),
    POINTED("records", &window.spans, record_fields, SPAN_RECORD_BYTES),
    POINTED("chunks", &window.chunks, chunk_fields, sizeof(struct chunk)),
    TABLE("books", LIST, &books_mappings, book_fields, 0, 0, offsetof(struct books_mapping, next), 0),
    ARRAY("book_bytes", &books_taken_bytes, book_bytes_fields, sizeof books_taken_bytes, 1),
    ARRAY("outside", outside_first_slots, outside_fields, sizeof outside_first_slots[0], OUTSIDE_FIRST_SLOTS),
    INSIDE("outside_later", TABLE_OUTSIDE, sizeof(struct outside_table), outside_fields, sizeof(struct outside_slot),
           OUTSIDE_LATER_SLOTS),
    ARRAY("foreign", &foreign_seen, foreign_fields, sizeof foreign_seen, 1),
    ARRAY("purge_running", &purger_running, running_fields, sizeof purger_running, 1),
    ARRAY("purge_started", &purger_started, started_fields, sizeof purger_started, 1),
    ARRAY("heap_settings", &heap_settings, setting_fields, sizeof heap_settings, 1),
    ARRAY("pressed", pressure_counts, pressed_fields, sizeof pressure_counts[0], ACE_PRESSURE_STALLS + 1),
    ARRAY("failures", failure_slots, failure_fields, sizeof failure_slots[0], FAILURES_KEPT),
    ARRAY("failure_counts", failure_counts, failure_count_fields, sizeof failure_counts[0], FAILURE_CAUSE_COUNT),
    ARRAY("decisions", decision_slots, decision_fields, sizeof decision_slots[0], DECISIONS_KEPT),
    ARRAY("decision_counts", decision_counts, decision_count_fields, sizeof decision_counts[0], ACE_REASON_COUNT),
    ARRAY("decision_kinds", decision_kinds, kind_fields, sizeof decision_kinds[0], ACE_KIND_COUNT),
    ARRAY("reasons", decision_reasons, reason_fields, sizeof decision_reasons[0], ACE_REASON_COUNT),
    ARRAY("options", option_places, option_fields, sizeof option_places[0], COUNT_OF(option_places)),
    ARRAY("option_infos", option_infos, info_fields, sizeof option_infos[0], OPTION_TOTAL),
    POINTED("option_choices", 0, choice_fields, sizeof(struct option_choice)),
    ARRAY("other_variables", option_other_variables, call_name_fields, sizeof option_other_variables[0], OPTION_OTHERS),
    ARRAY("sources", start_settings.sources, source_fields, 1, OPTION_TOTAL),
    ARRAY("profile_file", start_settings.profile_file, file_fields, 1, OPTION_PATH_BYTES),
    ARRAY("limits", &limits, limit_fields, sizeof limits, 1),
};

#define TEXT(number) #number
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

HAK_ALIGNED(16) const struct hak_page start_page = {
    .magic = HAK_PAGE_MAGIC,
    .self = &start_page,
    .tables = tables,
    .table_count = COUNT_OF(tables),
    .version_major = HAK_PAGE_VERSION_MAJOR,
    .version_minor = HAK_PAGE_VERSION_MINOR,
    .library = VERSION(HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR, HAKMEM_VERSION_PATCH),
};
