/* elf_image.c - reading an ELF file: see elf_image.h. Every offset of the file is checked before it is followed. */
#include "elf_image.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct image image_map(const char *path) {
    struct image image = {NULL, 0};
    struct stat file;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return image;
    if (fstat(fd, &file) == 0 && file.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) image = (struct image){bytes, (size_t)file.st_size};
    }
    close(fd);
    return image;
}

void image_unmap(struct image image) {
    if (image.bytes != NULL) munmap((void *)(uintptr_t)image.bytes, image.size);
}

/* COUNT items of ITEM bytes at OFFSET, or NULL if they do not lie inside the file or are not aligned. */
static const void *image_at(struct image image, uint64_t offset, uint64_t count, size_t item) {
    if (offset > image.size || offset % sizeof(ElfW(Addr)) != 0 || count > (image.size - offset) / item)
        return NULL;
    return image.bytes + offset;
}

bool image_is_elf(struct image image) {
    return image.size >= sizeof(ElfW(Ehdr)) && memcmp(image.bytes, ELFMAG, SELFMAG) == 0;
}

bool image_same_machine(struct image one, struct image other) {
    const ElfW(Ehdr) *a = (const void *)one.bytes, *b = (const void *)other.bytes;
    return memcmp(one.bytes + EI_CLASS, other.bytes + EI_CLASS, 2) == 0 && a->e_machine == b->e_machine;
}

bool image_names_interpreter(struct image image) {
    const ElfW(Ehdr) *header = (const void *)image.bytes;
    const ElfW(Phdr) *segment = image_at(image, header->e_phoff, header->e_phnum, sizeof *segment);
    for (size_t i = 0; segment != NULL && i < header->e_phnum; i++)
        if (segment[i].p_type == PT_INTERP) return true;
    return segment == NULL; /* unreadable: let the kernel judge */
}

/* The strings of a section; NULL if they do not lie inside the file, or do not end there. */
static const char *image_text(struct image image, const ElfW(Shdr) * strings) {
    if (strings->sh_offset > image.size || strings->sh_size > image.size - strings->sh_offset) return NULL;
    const char *text = (const char *)image.bytes + strings->sh_offset;
    return strings->sh_size > 0 && text[strings->sh_size - 1] == '\0' ? text : NULL;
}

static bool symbols_define(struct image image, const ElfW(Shdr) * table, const ElfW(Shdr) * strings,
                           const char *name) {
    size_t count = table->sh_size / sizeof(ElfW(Sym));
    const ElfW(Sym) *symbol = image_at(image, table->sh_offset, count, sizeof *symbol);
    const char *text = image_text(image, strings);
    if (symbol == NULL || text == NULL) return false;
    size_t bytes = strlen(name) + 1;
    for (size_t i = 0; i < count; i++) {
        bool fits = symbol[i].st_name < strings->sh_size && strings->sh_size - symbol[i].st_name >= bytes;
        if (symbol[i].st_shndx != SHN_UNDEF && fits && memcmp(text + symbol[i].st_name, name, bytes) == 0)
            return true;
    }
    return false;
}

bool image_defines_malloc(struct image image) {
    const ElfW(Ehdr) *header = (const void *)image.bytes;
    const ElfW(Shdr) *section = image_at(image, header->e_shoff, header->e_shnum, sizeof *section);
    for (size_t i = 0; section != NULL && i < header->e_shnum; i++)
        if (section[i].sh_type == SHT_DYNSYM && section[i].sh_link < header->e_shnum)
            return symbols_define(image, &section[i], &section[section[i].sh_link], "malloc");
    return false;
}

/* The string of an entry of the dynamic section that has TAG, and a string that begins with START; NULL if there is none. */
static const char *dynamic_string(struct image image, int64_t tag, const char *start) {
    const ElfW(Ehdr) *header = (const void *)image.bytes;
    const ElfW(Shdr) *section = image_at(image, header->e_shoff, header->e_shnum, sizeof *section);
    for (size_t i = 0; section != NULL && i < header->e_shnum; i++) {
        if (section[i].sh_type != SHT_DYNAMIC || section[i].sh_link >= header->e_shnum) continue;
        const ElfW(Shdr) *strings = &section[section[i].sh_link];
        size_t count = section[i].sh_size / sizeof(ElfW(Dyn));
        const ElfW(Dyn) *entry = image_at(image, section[i].sh_offset, count, sizeof *entry);
        const char *text = image_text(image, strings);
        for (size_t j = 0; entry != NULL && text != NULL && j < count; j++) {
            if (entry[j].d_tag != tag || entry[j].d_un.d_val >= strings->sh_size) continue;
            if (strncmp(text + entry[j].d_un.d_val, start, strlen(start)) == 0) return text + entry[j].d_un.d_val;
        }
    }
    return NULL;
}

bool image_is_loader(struct image image) { return dynamic_string(image, DT_SONAME, "ld-") != NULL; }

const char *image_sanitizer(struct image image) {
    static const char *const libraries[] = {"libasan.", "libtsan.", "liblsan.", "libhwasan.", "libclang_rt."};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        const char *name = dynamic_string(image, DT_NEEDED, libraries[i]);
        if (name != NULL) return name;
    }
    return NULL;
}
