// relay.py for a box that has node but no Python: `node container_relay.js PORT SOCKET PID`.
// Returns as soon as it listens; passes connections on to the socket while process PID is there.
const { spawn } = require('child_process');
const fs = require('fs');
const net = require('net');

const [port, path, command, apart] = process.argv.slice(2);
if (!apart) {
  const args = [__filename, port, path, command, 'apart'];
  const relay = spawn(process.execPath, args, { detached: true, stdio: ['ignore', 'pipe', 'ignore'] });
  relay.stdout.once('data', () => process.exit(0));
  relay.once('exit', () => {
    process.stderr.write('the gateway cannot be reached from here\n');
    process.exit(125);
  });
} else {
  const server = net.createServer({ allowHalfOpen: true }, (near) => {
    const far = net.connect({ path, allowHalfOpen: true });
    for (const [from, to] of [[near, far], [far, near]]) {
      from.on('error', () => to.destroy());
      from.pipe(to);
    }
  });
  server.on('error', () => process.exit(125));
  server.listen(Number(port), '127.0.0.1', 128, () => process.stdout.write('listening\n'));
  setInterval(() => fs.existsSync(`/proc/${command}`) || process.exit(0), 500);
}
