# hak_compile(TARGET): the language, warnings and instrumentation that every target of the tree shares.

set(hak_warnings
    -Wall -Wextra -Wshadow -Wundef -Wvla -Wpointer-arith -Wwrite-strings -Wformat=2
    -Wno-format-nonliteral)
set(hak_c_warnings
    -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition)

# For code whose calls of malloc must stay as written: compilers rewrite and remove calls of what they know.
set(hak_unknown_malloc
    -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free
    -fno-builtin-aligned_alloc -fno-builtin-memalign -fno-builtin-posix_memalign)

function(hak_compile target)
    set_target_properties(${target} PROPERTIES
        C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS ON
        CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS ON)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    target_compile_options(${target} PRIVATE ${hak_warnings}
        "$<$<COMPILE_LANGUAGE:C>:${hak_c_warnings}>")
    if(HAK_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
    if(HAK_SANITIZE)
        target_compile_options(${target} PRIVATE
            -fsanitize=${HAK_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
        target_link_options(${target} PRIVATE -fsanitize=${HAK_SANITIZE})
    endif()
endfunction()
