#!/usr/bin/env bash
# broker.sh DIR PORT: a RabbitMQ of one's own, in the foreground, with all it keeps in DIR. It listens on the loopback address
# only: on PORT for AMQP, on the next two for Erlang's distribution and its port mapper, which ends with it, and, if there is an
# openssl to make certificates, on the fourth for AMQP over TLS; DIR/authority.pem is whom to trust then. Tests find the virtual
# hosts t0 to t63 there, so that no two of them see each other's queues.
set -eu -o pipefail
dir=$1 port=$2
mkdir -p "$dir/home" "$dir/mnesia" "$dir/log"
: >"$dir/empty"

access() {
    printf '{"user":"guest","vhost":"%s","configure":".*","write":".*","read":".*"}' "$1"
}
vhosts='{"name":"/"}' permissions=$(access /)
for number in {0..63}; do
    vhosts+=",{\"name\":\"t$number\"}" permissions+=",$(access "t$number")"
done
cat >"$dir/definitions.json" <<JSON
{"users":[{"name":"guest","password":"guest","tags":""},{"name":"nobody","password":"guest","tags":""}],
"vhosts":[$vhosts],"permissions":[$permissions]}
JSON
echo "load_definitions = $dir/definitions.json" >"$dir/rabbitmq.conf"

# certificate NAME SUBJECT ARGUMENTS…: a key and a certificate for two days.
certificate() {
    local name=$1 subject=$2
    shift 2
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$subject" \
        -keyout "$dir/$name.key" -out "$dir/$name.pem" "$@" 2>/dev/null
}
if command -v openssl >/dev/null && ! [ -e "$dir/broker.pem" ]; then
    certificate authority "an authority for tests" -addext basicConstraints=critical,CA:TRUE
    certificate broker localhost -CA "$dir/authority.pem" -CAkey "$dir/authority.key" \
        -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost,IP:127.0.0.1
fi
if [ -e "$dir/broker.pem" ]; then
    cat >>"$dir/rabbitmq.conf" <<CONF
listeners.ssl.default = 127.0.0.1:$((port + 3))
ssl_options.cacertfile = $dir/authority.pem
ssl_options.certfile = $dir/broker.pem
ssl_options.keyfile = $dir/broker.key
ssl_options.verify = verify_none
CONF
fi

export HOME=$dir/home ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=$((port + 2))
setpriv --pdeathsig KILL epmd -address 127.0.0.1 -port $((port + 2)) &
export RABBITMQ_NODENAME=primus$port@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=$port
export RABBITMQ_DIST_PORT=$((port + 1)) RABBITMQ_PID_FILE=$dir/pid
export RABBITMQ_MNESIA_BASE=$dir/mnesia RABBITMQ_LOG_BASE=$dir/log RABBITMQ_LOGS=$dir/log/broker.log
export RABBITMQ_CONF_ENV_FILE=$dir/empty RABBITMQ_CONFIG_FILE=$dir/rabbitmq.conf
export RABBITMQ_ADVANCED_CONFIG_FILE=$dir/none RABBITMQ_ENABLED_PLUGINS_FILE=$dir/plugins
# Without this the script stays between us and the broker, and whoever kills us leaves the broker behind.
export RABBITMQ_ALLOW_INPUT=1
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-noinput -kernel inet_dist_use_interface {127,0,0,1}"
exec /usr/lib/rabbitmq/bin/rabbitmq-server >"$dir/log/output" 2>&1 </dev/null
