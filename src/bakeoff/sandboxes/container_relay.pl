# relay.py for a box that has Perl but no Python: `perl container_relay.pl PORT SOCKET PID`.
# Returns as soon as it listens; passes connections on to the socket while process PID is there.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX ();

my ($port, $path, $command) = @ARGV;
my $listening = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1', LocalPort => $port, Proto => 'tcp',
    Listen => 128, ReuseAddr => 1, ReusePort => 1,
) or die "the gateway cannot be reached from here: $@\n";
my $child = fork;
die "the gateway cannot be reached from here: $!\n" unless defined $child;
exit 0 if $child;

POSIX::setsid();
open STDIN, '<', '/dev/null';
open STDOUT, '>', '/dev/null';
open STDERR, '>', '/dev/null';
$SIG{CHLD} = 'IGNORE';
my $waiting = IO::Select->new($listening);
while (-d "/proc/$command") {
    next unless $waiting->can_read(0.5);
    my $near = $listening->accept or next;
    my $pid = fork;
    if (defined $pid && $pid == 0) {
        close $listening;
        my $far = IO::Socket::UNIX->new(Peer => $path) or POSIX::_exit(1);
        pass($near, $far);
        POSIX::_exit(0);
    }
    close $near;
}

sub pass {
    my ($near, $far) = @_;
    my $open = IO::Select->new($near, $far);
    while ($open->count) {
        my @ready = $open->can_read(0.5);
        return unless @ready || -d "/proc/$command";
        for my $from (@ready) {
            my $to = $from == $near ? $far : $near;
            my $count = sysread $from, my $piece, 65536;
            if ($count) {
                my $sent = 0;
                while ($sent < $count) {
                    my $more = syswrite $to, $piece, $count - $sent, $sent;
                    return unless defined $more;
                    $sent += $more;
                }
            } else {
                $open->remove($from);
                shutdown $to, 1;
            }
        }
    }
}
