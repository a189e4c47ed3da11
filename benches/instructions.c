/* A plugin for qemu that counts the guest's instructions. Counts are exact and repeatable.

       gcc -O2 -shared -fPIC -o libinstructions.so instructions.c
       qemu-... -plugin ./libinstructions.so,mark=0xADDRESS

   Whenever the instruction at the mark is about to run, the plugin prints the count since the last time to stderr. With
   `,spans=FILE`, it also writes how often each instruction ran in the spans from every odd mark to the next, as lines
   `ADDRESS COUNT`, for benches/functions.py.

   The declarations are copied from qemu-plugin.h, version 1 (qemu 4.2 to 9), because not every installation of qemu has
   this header. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { INLINE_ADD_U64 = 0, CB_NO_REGS = 0 };
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int, void *, uint64_t);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t count, last, mark;

/* For each half word of the first 4 MiB of a firmware, how often the instruction there ran: in total, up to the last odd
   mark, and in spans. */
enum { WORDS = 1 << 21 };
static uint64_t ran[WORDS], before[WORDS], spans[WORDS];
static const char *file;
static int marks;

static void hit(unsigned cpu, void *data) {
    fprintf(stderr, "instructions %llu\n", (unsigned long long)(count - last));
    last = count;
    if (!file)
        return;
    if (++marks % 2)
        memcpy(before, ran, sizeof ran);
    else
        for (size_t i = 0; i < WORDS; i++)
            spans[i] += ran[i] - before[i];
}

static void end(qemu_plugin_id_t id, void *data) {
    FILE *to = fopen(file, "w");
    for (size_t i = 0; to && i < WORDS; i++)
        if (spans[i])
            fprintf(to, "%zx %llu\n", 2 * i, (unsigned long long)spans[i]);
    if (to)
        fclose(to);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        if (qemu_plugin_insn_vaddr(instruction) == mark)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, hit, CB_NO_REGS, 0);
        qemu_plugin_register_vcpu_insn_exec_inline(instruction, INLINE_ADD_U64, &count, 1);
        uint64_t word = (qemu_plugin_insn_vaddr(instruction) & 0xfffffff) / 2;
        if (file && word < WORDS)
            qemu_plugin_register_vcpu_insn_exec_inline(instruction, INLINE_ADD_U64, &ran[word], 1);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "mark=", 5))
            mark = strtoull(argv[i] + 5, 0, 0) & ~1ull;
        if (!strncmp(argv[i], "spans=", 6))
            file = strdup(argv[i] + 6);
    }
    if (file)
        qemu_plugin_register_atexit_cb(id, end, 0);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
