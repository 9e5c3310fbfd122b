// For cases that patch a library: finds a function without the loader's help, which a check before a run would see.
#pragma once
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

struct Wanted {
    const char *library, *name;
    void* found;
};

static int look_in(dl_phdr_info* object, size_t, void* raw) {
    Wanted* wanted = static_cast<Wanted*>(raw);
    if (!strstr(object->dlpi_name, wanted->library)) return 0;
    const auto at = [&](uintptr_t p) { return p < object->dlpi_addr ? p + object->dlpi_addr : p; };
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        uintptr_t symbols = 0, names = 0;
        const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_SYMTAB) symbols = at(entry->d_un.d_ptr);
            if (entry->d_tag == DT_STRTAB) names = at(entry->d_un.d_ptr);
        }
        // Linkers put the names behind the symbols.
        for (auto s = reinterpret_cast<const ElfW(Sym)*>(symbols); reinterpret_cast<uintptr_t>(s + 1) <= names; s++)
            if (s->st_value && strcmp(reinterpret_cast<const char*>(names) + s->st_name, wanted->name) == 0) {
                wanted->found = reinterpret_cast<void*>(object->dlpi_addr + s->st_value);
                return 1;
            }
    }
    return 1;
}

static inline void* find_symbol(const char* library, const char* name) {
    Wanted wanted = {library, name, nullptr};
    dl_iterate_phdr(look_in, &wanted);
    return wanted.found;
}

static inline void overwrite(const char* library, const char* name, const void* code, size_t size) {
    char* at = static_cast<char*>(find_symbol(library, name));
    if (!at) return;
    char* page = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(at) & ~uintptr_t(4095));
    if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0) memcpy(at, code, size);
}
