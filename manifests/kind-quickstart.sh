kubectl create namespace tiphys-system
kubectl label namespace tiphys-system pod-security.kubernetes.io/enforce=restricted
helm install tiphys helm/tiphys --namespace tiphys-system --wait --timeout 2m

kubectl create namespace shop
kubectl apply --namespace shop --filename - <<'POLICY'
apiVersion: tiphys.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: functions}
spec: {policy: least-connections, mode: Shadow}
POLICY
kubectl apply --namespace shop --filename - <<'POD'
apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  schedulerName: tiphys
  containers:
    - name: hello
      image: ghcr.io/tiphys-io/tiphys-extender:0.1.0
      command: [python, -c, "import time; time.sleep(3600)"]
POD
kubectl wait --namespace shop --for=condition=Ready pod/hello --timeout=60s
kubectl get schedulingpolicies --namespace shop
tiphys explain pod/hello --namespace shop
