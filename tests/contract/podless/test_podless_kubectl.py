"""The real kubectl works, with its checks switched on. Every test has a namespace of its own."""

import shutil

import pytest
from kubectl_command import Kubectl
from podless_client import Api

from tests.contract.podless.conftest import Target

pytestmark = [
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH"),
    pytest.mark.parametrize("target", ["memory", pytest.param("real", marks=pytest.mark.real_api)], indirect=True),
]

WEB = """
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{name: http, port: 80}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: nginx, resources: {limits: {cpu: "1", memory: 64Mi}}}]
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, kind: Foo, shortNames: [fo], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, minimum: 1, description: How many.}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
FOO = "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: f1}\nspec: {size: 3}\n"


@pytest.fixture
async def kubectl(target: Target, api: Api) -> Kubectl:
    kubectl = Kubectl(target.kubeconfig, api.ns)
    await kubectl(f"config set-context --current --namespace={api.ns}")
    return kubectl


async def test_apply_client_and_server_side(kubectl: Kubectl, target: Target) -> None:
    made = "service/web created\ndeployment.apps/web created"
    assert await kubectl("apply -f - --dry-run=server", WEB) == made.replace("created", "created (server dry run)")
    assert await kubectl("apply -f -", WEB) == made
    assert await kubectl("apply -f -", WEB) == made.replace("created", "unchanged")
    assert await kubectl("diff -f -", WEB) == ""
    changed = WEB.replace("port: 80", "port: 81")
    assert "+    port: 81" in await kubectl("diff -f -", changed, code=1)
    assert "service/web configured" in await kubectl("apply -f -", changed)
    assert await kubectl("get svc web -o jsonpath={.spec.ports[*].port}") == "81"
    assert "service/web serverside-applied" in await kubectl("apply --server-side -f -", changed)
    conflict = await kubectl.fails(
        "apply --server-side --field-manager=other -f -", WEB.replace("app: web}\n  ports", "app: x}\n  ports")
    )
    assert "Apply failed with 1 conflict" in conflict
    forced = "apply --server-side --force-conflicts --field-manager=other -f -"
    assert "service/web serverside-applied" in await kubectl(forced, changed)
    # Without a kube-controller-manager, nothing ends a deletion in the foreground.
    cascade = "foreground" if target.controllers else "background"
    assert 'service "web" deleted' in await kubectl(f"delete -f - --cascade={cascade}", WEB)


async def test_field_validation(kubectl: Kubectl) -> None:
    typo = WEB.replace("type: LoadBalancer", "typo: LoadBalancer")
    assert 'strict decoding error: unknown field "spec.typo"' in await kubectl.fails("apply -f -", typo)
    assert 'Warning: unknown field "spec.typo"' in await kubectl("apply --validate=warn -f -", typo)
    bad = WEB.replace("port: 80", "port: 0")
    assert "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive" in await kubectl.fails(
        "apply -f -", bad
    )
    assert 'no matches for kind "Foo" in version "example.com/v1"' in await kubectl.fails("apply -f -", FOO)


async def test_looking(kubectl: Kubectl) -> None:
    assert "No resources found" in await kubectl("get events")
    assert "No events found" in await kubectl("events")
    await kubectl("apply -f -", WEB)
    header, row = (await kubectl("get svc -o wide")).splitlines()
    assert header.split() == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE", "SELECTOR"]
    assert row.split()[:2] == ["web", "LoadBalancer"]
    assert row.split()[3] == "<pending>"
    assert await kubectl("get svc,deploy -o name") == "service/web\ndeployment.apps/web"
    assert "service/web" in await kubectl("get all -A")
    for form in ("yaml", "json"):
        assert "allocateLoadBalancerNodePorts" in await kubectl(f"get svc web -o {form}")
    assert "NodePort:                 http" in await kubectl("describe svc web")
    assert "FIELD: type <string>" in await kubectl("explain svc.spec.type")
    assert "discovery.k8s.io/v1" in await kubectl("api-versions")
    assert "endpointslices" in await kubectl("api-resources")
    assert "Server Version: v1." in await kubectl("version")
    assert 'services "nope" not found' in await kubectl.fails("get svc nope")
    node = f"n-{kubectl.ns}"
    await kubectl("create -f -", f"apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\n")
    assert node in await kubectl("get nodes -o wide")
    assert "Unschedulable:      false" in await kubectl(f"describe node {node}")
    await kubectl(f"delete node {node}")


async def test_changing(kubectl: Kubectl, target: Target) -> None:
    team = f"{kubectl.ns}-team"
    assert await kubectl(f"create ns {team}") == f"namespace/{team} created"
    await kubectl(f"apply -n {team} -f -", WEB)
    assert await kubectl(f"-n {team} label svc web x=y") == "service/web labeled"
    assert await kubectl(f"-n {team} annotate svc web a.b/c=d") == "service/web annotated"
    assert (
        await kubectl(f'-n {team} patch svc web -p {{"spec":{{"ports":[{{"port":81,"name":"b"}}]}}}}')
        == "service/web patched"
    )
    remove = '[{"op":"remove","path":"/spec/ports/1"}]'
    assert await kubectl(f"-n {team} patch svc web --type=json -p {remove}") == "service/web patched"
    assert (
        await kubectl(f'-n {team} patch svc web --type=merge -p {{"spec":{{"selector":{{"a":"b"}}}}}}')
        == "service/web patched"
    )
    current = await kubectl(f"-n {team} get svc web -o yaml")
    assert "service/web replaced" in await kubectl(f"-n {team} replace -f -", current.replace("http", "https"))
    assert await kubectl(f"-n {team} create service clusterip cs --tcp=80:8080") == "service/cs created"
    assert await kubectl(f"-n {team} expose service cs --name=cs2 --port=90") == "service/cs2 exposed"
    assert await kubectl(f"-n {team} create configmap c --from-literal=a=b") == "configmap/c created"
    assert await kubectl(f"-n {team} create secret generic s --from-literal=a=b") == "secret/s created"
    assert await kubectl(f"-n {team} get secret s -o jsonpath={{.data.a}}") == "Yg=="
    assert 'service "web" deleted' in await kubectl(f"-n {team} delete svc --all")
    if target.controllers:
        assert await kubectl(f"delete ns {team}") == f'namespace "{team}" deleted'


async def test_access(kubectl: Kubectl) -> None:
    await kubectl("create sa bob")
    assert len((await kubectl("create token bob")).split(".")) == 3
    ask = f"auth can-i list services --as=system:serviceaccount:{kubectl.ns}:bob"
    assert (await kubectl.fails(ask)).startswith("no")
    await kubectl("create role r --verb=get,list --resource=services")
    await kubectl(f"create rolebinding b --role=r --serviceaccount={kubectl.ns}:bob")
    assert await kubectl(ask) == "yes"
    assert "[get list]" in await kubectl(f"auth can-i --list --as=system:serviceaccount:{kubectl.ns}:bob")
    assert "kubernetes-admin" in await kubectl("auth whoami")
    assert (await kubectl("auth can-i delete nodes")).endswith("yes")


async def test_custom_resources(kubectl: Kubectl) -> None:
    await kubectl("apply -f -", CRD)
    await kubectl("wait --for=condition=Established crd/foos.example.com --timeout=2m")
    assert await kubectl("apply -f -", FOO) == "foo.example.com/f1 created"
    assert 'unknown field "spec.typo"' in await kubectl.fails("apply -f -", FOO.replace("size", "typo"))
    assert "should be greater than or equal to 1" in await kubectl.fails("apply -f -", FOO.replace("3", "0"))
    assert await kubectl('patch fo f1 --type=merge -p {"spec":{"size":4}}') == "foo.example.com/f1 patched"
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl(f"patch fo f1 --subresource=status --type=merge -p {status}")
    await kubectl("wait --for=condition=Ready fo/f1 --timeout=2m")
    await kubectl("wait --for=jsonpath={.spec.size}=4 fo/f1 --timeout=2m")
    header, row = (await kubectl("get fo")).splitlines()
    assert (header.split(), row.split()) == (["NAME", "SIZE", "READY"], ["f1", "4", "True"])
    assert "Generation:" in await kubectl("describe fo f1")
    assert "How many." in await kubectl("explain foo.spec.size")
    await kubectl("delete fo f1")
    await kubectl("wait --for=delete fo/f1 --timeout=2m")
    await kubectl("delete crd foos.example.com")


async def test_watching(kubectl: Kubectl) -> None:
    await kubectl("apply -f -", WEB)
    process = await kubectl.start("get", "svc", "-w", "-o", "custom-columns=N:.metadata.name,L:.metadata.labels.z")
    assert process.stdout is not None
    await process.stdout.readline()
    assert (await process.stdout.readline()).split() == [b"web", b"<none>"]
    await kubectl("label svc web z=1")
    assert (await process.stdout.readline()).split() == [b"web", b"1"]
    process.terminate()
    await process.wait()
    tables = await kubectl.start("get", "svc", "-w")
    assert tables.stdout is not None
    assert (await tables.stdout.readline()).startswith(b"NAME")
    await tables.stdout.readline()
    await kubectl("label svc web z=2 --overwrite")
    assert (await tables.stdout.readline()).startswith(b"web")
    tables.terminate()
    await tables.wait()
