/* Places the classifier in flash. */
    .section .rodata.model, "a"
    .global model_file
    .global model_file_end
    .balign 64
model_file:
    .incbin "faults.gguf"
model_file_end:
    .section .note.GNU-stack, "", %progbits
