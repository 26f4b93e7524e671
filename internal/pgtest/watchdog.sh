# Ends one server and removes its directory when the process that started it has
# ended. The last write end of the pipe on our stdin is closed then. That
# process may also close the pipe on purpose, with the same effect.
#
# $1     the directory
# stdin  a line for each server: its process id, or 0 once it has been reaped

dir=$1
pid=0
while read -r line; do pid=$line; done

# Prints the process ids of $1's children. Asks ps where there is no /proc
# (macOS).
children() {
	if [ -r /proc/self/stat ]; then
		cat /proc/[0-9]*/stat | sed 's/^\([0-9]*\) (.*) [A-Za-z] \([0-9]*\) .*/\1 \2/'
	else
		ps -A -o pid= -o ppid=
	fi | while read -r child parent; do
		if [ "$parent" = "$1" ]; then echo "$child"; fi
	done
}

# Tries an immediate shutdown first, which leaves no semaphores behind. The
# server may be frozen, so it is continued before. Then come SIGSTOP and
# SIGKILL: a stopped postmaster starts no more children. A child may end between
# its listing and its signal. kill fails then, and the script goes on.
if [ "$pid" -gt 0 ] && kill -0 "$pid"; then
	kill -CONT "$pid" $(children "$pid")
	kill -QUIT "$pid"
	tries=0
	while kill -0 "$pid" && [ "$tries" -lt 60 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	if kill -STOP "$pid"; then kill -KILL $(children "$pid") "$pid"; fi
fi

# A killed server leaves a System V shared memory segment. Its lock file has the
# segment's id.
if [ -f "$dir/data/postmaster.pid" ]; then
	segment=$(sed -n '7s/.* //p' "$dir/data/postmaster.pid")
	if [ -n "$segment" ]; then ipcrm -m "$segment"; fi
fi

rm -rf "$dir" || { sleep 1; rm -rf "$dir"; }
