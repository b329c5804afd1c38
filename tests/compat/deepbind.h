/* deepbind.h - what deepbind.c and its plugin say to each other. */
#ifndef HAK_TESTS_DEEPBIND_H
#define HAK_TESTS_DEEPBIND_H

enum giver { GIVE_MALLOC, GIVE_STRDUP, GIVE_REALPATH, GIVE_ASPRINTF, GIVE_GETLINE };

char *plugin_give(enum giver giver);
void plugin_take(char *block);

#endif
