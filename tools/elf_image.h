/* elf_image.h - what a file says of itself before it is started: for which machine it is built, whether the dynamic loader
 * takes part, and whether it brings a malloc of its own. */
#ifndef TOOLS_ELF_IMAGE_H
#define TOOLS_ELF_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file mapped for reading; empty when it cannot be read, which does not keep it from being run. */
struct image {
    const unsigned char *bytes;
    size_t size;
};

struct image image_map(const char *path);
void image_unmap(struct image image);
bool image_is_elf(struct image image);

/* Of images that are ELF. */

bool image_same_machine(struct image one, struct image other);
bool image_names_interpreter(struct image image); /* also when that cannot be read: let the kernel judge */
bool image_is_loader(struct image image);         /* glibc's, which names no interpreter either */
bool image_defines_malloc(struct image image);    /* its own, which comes before any preloaded one */

/* A library of a sanitizer that the program asks for; NULL if there is none. It brings a malloc with it that must stand
 * alone: it ends the program when it comes second, or half works. Valid until the image is unmapped. */
const char *image_sanitizer(struct image image);

#endif
