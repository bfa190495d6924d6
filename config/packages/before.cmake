# Runs before CPack packs the installed files: adds the files that only packages have.
foreach(component init node)
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component})
  set(package rdma-init)
  if(component STREQUAL node)
    set(package rdma-hook)
    file(MAKE_DIRECTORY ${root}/etc/rdma-init)
  endif()
  file(GLOB programs ${root}/usr/bin/*)
  file(MAKE_DIRECTORY ${root}/usr/share/doc/${package})
  execute_process(COMMAND ${CPACK_PROJECT_SOURCE}/config/packages/sbom ${CPACK_PROJECT_BINARY} ${package} ${programs}
    OUTPUT_FILE ${root}/usr/share/doc/${package}/${package}.spdx.json COMMAND_ERROR_IS_FATAL ANY)
  if(CPACK_GENERATOR STREQUAL DEB)
    execute_process(COMMAND ${CPACK_PROJECT_SOURCE}/config/packages/deb/documents ${package} ${CPACK_PACKAGE_VERSION} ${CPACK_PROJECT_SOURCE} ${root} ${CPACK_PACKAGE_CONTACT}
      COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
