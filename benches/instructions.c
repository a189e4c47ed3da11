/* A plugin for qemu that counts the guest's instructions, exactly and repeatably.

       gcc -O2 -shared -fPIC -o libinstructions.so instructions.c
       qemu-... -plugin ./libinstructions.so,mark=0xADDRESS

   Whenever the instruction at a mark is about to run, the count since the last mark is printed to stderr.
   The declarations are those of qemu-plugin.h, version 1 (qemu 4.2 to 9), which is not installed everywhere. */
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
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t count, last, mark;

static void hit(unsigned cpu, void *data) {
    fprintf(stderr, "instructions %llu\n", (unsigned long long)(count - last));
    last = count;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        if (qemu_plugin_insn_vaddr(instruction) == mark)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, hit, CB_NO_REGS, 0);
        qemu_plugin_register_vcpu_insn_exec_inline(instruction, INLINE_ADD_U64, &count, 1);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], "mark=", 5))
            mark = strtoull(argv[i] + 5, 0, 0) & ~1ull;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
