#!/bin/sh
# A bridge for this node's pods. Other nodes' pods are reached by routes that are set from outside: a kubelet may read its own Node only.
set -eu
range=
while [ -z "$range" ]; do
  range=$(kubectl --kubeconfig=/etc/kubernetes/kubelet.conf get node "$(hostname)" -o 'jsonpath={.spec.podCIDR}' 2>/dev/null) || range=
  [ -n "$range" ] || sleep 0.5
done
cat > /etc/cni/net.d/.10-bridge.conflist <<JSON
{"cniVersion": "0.4.0", "name": "bridge", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$range"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
mv /etc/cni/net.d/.10-bridge.conflist /etc/cni/net.d/10-bridge.conflist
