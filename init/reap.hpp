// Runs the command as a child and stays behind as its init: the --reap mode of rdma-init.
#pragma once

namespace init {

// Spawns argv[0] (PATH lookup, environment envp) in a process group of its own and stays until it ends. The child
// starts with the signal mask, dispositions and parent-death signal that this process was started with.
//
// Signals: every signal that can be caught goes on to the child's group, also SIGSEGV and the like when another process
// sends them. SIGKILL and SIGSTOP cannot be caught. SIGTTIN and SIGTTOU concern our own group only.
//
// Terminal: if our group has the foreground of the controlling terminal, the child's group gets it, so that Ctrl-C and
// window sizes reach the child once and directly; it is taken back when the child ends. If the child is stopped under
// an interactive shell, our group stops too, so that the shell gets its terminal back; "fg" and "bg" continue both.
// Where there is no such shell, as in a container, Ctrl-Z has no effect, as it has none on a container's PID 1.
//
// Orphans: as PID 1, or else as a child subreaper, this process reaps every descendant. When the child has ended, it
// does not wait for the others: under PID 1 the kernel kills them with the PID namespace; otherwise they live on and
// the next subreaper or init inherits them, as with any command that leaves background processes.
//
// Nothing that happens after the spawn, short of SIGKILL, ends this process before the child. Inherited descriptors
// above stderr are closed in this process once the child has them, so that pipes end when the child closes them.
//
// Returns the exit code to leave with: the child's own, 128+n if signal n ended it, 126 or 127 if it could not be
// executed (as exec_command says it), 125 if no process could be created; messages go to stderr.
int run_reaping(char* const argv[], char* const envp[]);

}  // namespace init
