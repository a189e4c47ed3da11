/* FreeRTOS on a Cortex-M4F at 25 MHz, with static allocation only. */
#ifndef FREERTOS_CONFIG_H
#define FREERTOS_CONFIG_H

#define configCPU_CLOCK_HZ 25000000
#define configTICK_RATE_HZ 1000
#define configTICK_TYPE_WIDTH_IN_BITS TICK_TYPE_WIDTH_32_BITS
#define configUSE_PREEMPTION 1
#define configUSE_TIME_SLICING 0
#define configMAX_PRIORITIES 3
#define configMINIMAL_STACK_SIZE 128
#define configMAX_TASK_NAME_LEN 8
#define configUSE_IDLE_HOOK 0
#define configUSE_TICK_HOOK 0
#define configUSE_MUTEXES 0
#define configSUPPORT_STATIC_ALLOCATION 1
#define configSUPPORT_DYNAMIC_ALLOCATION 0
#define configKERNEL_PROVIDED_STATIC_MEMORY 1
#define configCHECK_FOR_STACK_OVERFLOW 2
#define configUSE_STREAM_BUFFERS 1
#define INCLUDE_xTaskDelayUntil 1
#define INCLUDE_uxTaskGetStackHighWaterMark 1

/* The chip has 3 bits of priority: 7 is the lowest. Interrupts of priority 5 to 7 may call functions of FreeRTOS. */
#define configPRIO_BITS 3
#define configKERNEL_INTERRUPT_PRIORITY (7 << (8 - configPRIO_BITS))
#define configMAX_SYSCALL_INTERRUPT_PRIORITY (5 << (8 - configPRIO_BITS))

/* Names of the handlers in the vector table of board.c. */
#define vPortSVCHandler on_svc
#define xPortPendSVHandler on_pendsv
#define xPortSysTickHandler on_systick

void failed_assertion(const char *file, int line);
#define configASSERT(condition) ((condition) ? (void)0 : failed_assertion(__FILE__, __LINE__))

#endif
